"""Events about nodes as clients hear them: on every connection that registered, of every shard and node, once per change."""

import socket
import struct
import time
import unittest
import urllib.request

import native
from native import Connection
from test_agreement import Nodes, until

KINDS = ("TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE")
SHARDS = 2
# Connections of one listener: the shards take turns, so that each shard has one at least.
CONNECTIONS = 2 * SHARDS
QUIET_SECONDS = 0.7


def event_of(body):
    """The words of an event about a node, with its address and port."""
    words, at = [], 0
    for _ in range(2):
        length = struct.unpack(">H", body[at : at + 2])[0]
        words.append(body[at + 2 : at + 2 + length].decode())
        at += 2 + length
    size = body[at]
    address = socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, body[at + 1 : at + 1 + size])
    return words[1], address, struct.unpack(">i", body[at + 1 + size :])[0]


class Listener:
    """Connections with one node that registered for events, and what each of them heard."""

    def __init__(self, node):
        native.HOST, native.PORT = node.address, 9042
        self.node = node
        self.connections = [Connection(version=4 if number % 2 else 5) for number in range(CONNECTIONS)]
        self.heard = [[] for _ in self.connections]
        kinds = struct.pack(">H", len(KINDS)) + b"".join(native.text(kind) for kind in KINDS)
        for connection in self.connections:
            assert connection.ask(native.REGISTER, kinds)[1] == native.READY

    def listen(self, seconds):
        """Takes in what arrives within this time."""
        deadline = time.monotonic() + seconds
        for connection, heard in zip(self.connections, self.heard):
            while True:
                connection.socket.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    answer = connection.read()
                except TimeoutError:
                    break
                assert answer is not None and answer[1] == native.EVENT, answer
                heard.append(event_of(answer[2]))

    def close(self):
        for connection in self.connections:
            connection.socket.close()


class Events(Nodes):
    def listener(self, node):
        listener = Listener(node)
        self.addCleanup(listener.close)
        return listener

    def hears(self, listeners, *events):
        """Each connection of each listener hears these events, and no other, in this order."""
        wanted = [(event, node.address, 9042) for event, node in events]

        def all_heard():
            for listener in listeners:
                listener.listen(0.02)
            return all(len(heard) >= len(wanted) for listener in listeners for heard in listener.heard)

        until(f"{wanted}", all_heard)
        for listener in listeners:
            listener.listen(QUIET_SECONDS / len(listeners))
            for heard in listener.heard:
                self.assertEqual(heard, wanted, f"at node {listener.node.number}")
                heard.clear()

    def transport(self, node, method):
        url = f"http://{node.address}:10000/storage_service/native_transport"
        urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20).close()

    def test_clients_hear_once_of_each_node_that_comes_and_goes(self):
        nodes = self.nodes(3, shards=SHARDS)
        for node in nodes[:2]:
            node.start().ready()
        self.agree(nodes[:2])
        listeners = [self.listener(node) for node in nodes[:2]]
        # They may still hear that the other one of the two is new and up, and nothing of their own node.
        time.sleep(QUIET_SECONDS)
        for listener, other in zip(listeners, reversed(nodes[:2])):
            listener.listen(0.1)
            for heard in listener.heard:
                self.assertTrue({event[1:] for event in heard} <= {(other.address, 9042)}, heard)
                heard.clear()
        third = nodes[2].start()
        self.hears(listeners, ("NEW_NODE", third), ("UP", third))
        self.assertTrue(third.is_ready(), "it answers clients once they hear of it")
        self.agree(nodes)
        third.kill()
        self.hears(listeners, ("DOWN", third))
        third.start()
        self.hears(listeners, ("UP", third))
        self.assertTrue(third.is_ready())

        # A node that lives and takes no clients is down to them; others' news reach clients of every node.
        first, second = nodes[:2]
        at_third = self.listener(third)
        at_third.listen(QUIET_SECONDS)
        self.transport(second, "DELETE")
        listeners[1].close()
        at_third.heard = [[] for _ in at_third.heard]
        self.hears([listeners[0]], ("DOWN", second))
        self.transport(second, "POST")
        self.hears([listeners[0]], ("UP", second))
        self.hears([at_third], ("DOWN", second), ("UP", second))
        self.assertEqual(second.end(), 0)
        self.hears([listeners[0], at_third], ("DOWN", second))


if __name__ == "__main__":
    unittest.main(verbosity=2)
