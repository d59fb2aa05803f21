"""What operators see of three nodes: REST, `ceto ctl`, metrics and log, with all of them up and with one killed."""

import json
import socket
import struct
import subprocess
import threading
import unittest
import urllib.request

import native
from test_agreement import BINARY, FIRST, KEYSPACE, Nodes, until
from test_copies import ALL, QUORUM, UNAVAILABLE, ask

TOKENS = 16


def get(node, path):
    with urllib.request.urlopen(f"http://{node.address}:10000{path}", timeout=20) as answer:
        return json.loads(answer.read() or "null")


def pairs(node, path):
    return {pair["key"]: pair["value"] for pair in get(node, path)}


def ctl(node, *words):
    command = [BINARY, "ctl", "-h", node.address, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def sampled(node):
    """The metrics of a node."""
    with urllib.request.urlopen(f"http://{node.address}:9180/metrics", timeout=20) as answer:
        lines = (line.decode().rsplit(" ", 1) for line in answer if not line.startswith(b"#"))
        return {name: float(value) for name, value in lines}


def forward(listener, to):
    """Hands connections on, as a router with an address of its own would."""

    def pump(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for end in source, sink:
            end.close()

    while True:
        try:
            near, far = listener.accept()[0], socket.create_connection(to)
        except OSError:
            return
        for ends in (near, far), (far, near):
            threading.Thread(target=pump, args=ends, daemon=True).start()


class Operators(Nodes):
    def test_others_reach_a_node_by_its_broadcast_address(self):
        first, second = self.nodes(2)
        outside = f"127.0.0.{FIRST + 9}"
        with open(second.work / "config.yaml", "a") as config:
            config.write(f"broadcast_address: {outside}\nbroadcast_rpc_address: {second.address}\n")
        with socket.create_server((outside, 7000)) as listener:
            threading.Thread(target=forward, args=(listener, (second.address, 7000)), daemon=True).start()
            first.start().ready()
            second.start().ready()
            until("the second to be up", lambda: get(first, "/gossiper/endpoint/live") == [first.address, outside])
            until("the first to be up", lambda: get(second, "/failure_detector/count/endpoint/up") == 2)
            self.assertEqual(first.peers(), {outside})
            shown = first.query("SELECT peer, rpc_address FROM system.peers")
            self.assertEqual([[socket.inet_ntoa(part) for part in row] for row in shown], [[outside, second.address]])
            own = second.query("SELECT broadcast_address, listen_address, rpc_address FROM system.local")[0]
            self.assertEqual([socket.inet_ntoa(part) for part in own], [outside, second.address, second.address])
            second.query(KEYSPACE.format("b"))
            self.assertEqual(first.query("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'b'"), [[b"b"]])
            self.assertRegex(ctl(first, "status"), rf"(?m)^UN  {outside} ")

    def test_every_node_shows_all_of_them(self):
        nodes = self.nodes(3)
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        everybody = [node.address for node in nodes]
        for node in nodes:
            until("all to be up", lambda: sorted(get(node, "/gossiper/endpoint/live")) == everybody)
        nodes[0].query(KEYSPACE.format("three"))
        nodes[0].query("CREATE TABLE three.t (k int PRIMARY KEY, v text)")
        ids = pairs(nodes[0], "/storage_service/host_id")
        self.assertEqual((sorted(ids), len(set(ids.values()))), (everybody, 3))
        tokens = pairs(nodes[0], "/storage_service/tokens_endpoint")
        self.assertEqual((len(tokens), sorted(set(tokens.values()))), (3 * TOKENS, everybody))
        for node in nodes:
            self.assertEqual(pairs(node, "/storage_service/host_id"), ids)
            self.assertEqual(pairs(node, "/storage_service/tokens_endpoint"), tokens)
            self.rings(node, everybody)
            own = [token for token, of in tokens.items() if of == node.address]
            self.assertEqual(sorted(get(node, "/storage_service/tokens")), sorted(own))
            self.assertEqual(get(nodes[0], f"/storage_service/tokens/{ids[node.address]}"), get(node, "/storage_service/tokens"))
            self.assertEqual(get(node, "/failure_detector/count/endpoint/up"), 3)
        until("loads", lambda: sorted(pairs(nodes[1], "/storage_service/load_map")) == everybody)
        self.shown_by_ctl(nodes, ids)
        nodes[2].kill()
        for node in nodes[:2]:
            until("node 3 to be down", lambda: get(node, "/gossiper/endpoint/down") == [nodes[2].address])
        self.shown_by_ctl(nodes, ids, down=nodes[2])
        with self.assertRaises(native.Refused) as refused:
            ask(nodes[0], "SELECT * FROM three.t WHERE k = 1", ALL)
        self.assertEqual(refused.exception.code, UNAVAILABLE)
        self.assertRegex(refused.exception.message, rf"level ALL; down: {nodes[2].address} for \d+ s$")
        self.metrics(nodes)

    def test_a_drained_node_that_lives_on_is_missed_by_nobody(self):
        nodes = self.nodes(3)
        for node in nodes:
            node.start()
        for node in nodes:
            node.ready()
        self.agree(nodes)
        for node in nodes:
            until("all to be up", lambda: get(node, "/failure_detector/count/endpoint/up") == 3)
        nodes[0].query(KEYSPACE.format("d"))
        nodes[0].query("CREATE TABLE d.t (k int PRIMARY KEY, v int)")
        for key in range(50):
            ask(nodes[0], f"INSERT INTO d.t (k, v) VALUES ({key}, 0)", ALL)
        with subprocess.Popen([BINARY, "ctl", "-h", nodes[2].address, "drain"], stdout=subprocess.DEVNULL) as drain:
            # From before it is drained until the others have known it as down for a while.
            seen_down = 0
            for number in range(10_000):
                key, asked = number % 50, nodes[number % 2]
                ask(asked, f"INSERT INTO d.t (k, v) VALUES ({key}, {number})", QUORUM)
                self.assertEqual(ask(asked, f"SELECT v FROM d.t WHERE k = {key}", QUORUM), [[struct.pack(">i", number)]])
                self.assertEqual(len(ask(asked, "SELECT k FROM d.t", QUORUM)), 50)
                seen_down += all(get(node, "/gossiper/endpoint/down") == [nodes[2].address] for node in nodes[:2])
                if seen_down > 50:
                    break
            self.assertEqual((drain.wait(60), seen_down), (0, 51))
        ctl(nodes[2], "drain")
        self.assertEqual(get(nodes[2], "/storage_service/operation_mode"), "DRAINED")
        self.assertIn(nodes[2].address, ctl(nodes[2], "status"))
        self.assertEqual(nodes[2].end(), 0, nodes[2].log()[-2000:])
        nodes[2].start().ready()
        for node in nodes:
            until("all to be up", lambda: get(node, "/failure_detector/count/endpoint/up") == 3)
        self.assertEqual(len(ask(nodes[2], "SELECT k FROM d.t", ALL)), 50)

    def metrics(self, nodes):
        """A hint or a read brings a node what it lacks, and what is said of the others is in the metrics."""
        ask(nodes[0], "INSERT INTO three.t (k, v) VALUES (1, 'v')", QUORUM)
        nodes[2].start().ready()
        until("all to be up", lambda: get(nodes[0], "/failure_detector/count/endpoint/up") == 3)
        self.assertEqual(len(ask(nodes[0], "SELECT * FROM three.t WHERE k = 1", ALL)), 1)
        found = sampled(nodes[0])
        for name, most in (("scylla_gossip_live", 2), ("scylla_gossip_unreachable", 0), ("ceto_coordinator_unavailable", 1)):
            self.assertEqual(found[f'{name}{{shard="0"}}'], most, name)
        brought = [f'{name}{{shard="0"}}' for name in ("ceto_coordinator_read_repairs", "scylla_hints_manager_sent_total")]
        self.assertGreaterEqual(sum(found.get(name, 0) for name in brought), 1)
        for node in (2, 3):
            self.assertGreater(found[f'ceto_internode_latency_count{{node="{node}",shard="0"}}'], 0)

    def rings(self, node, everybody):
        ring = get(node, "/storage_service/describe_ring/three")
        self.assertEqual(len(ring), 3 * TOKENS)
        tablets = get(node, "/storage_service/describe_ring/three?table=t")
        for found in ring, tablets:
            ends = [int(part["end_token"]) for part in found]
            self.assertEqual([int(part["start_token"]) for part in found], [ends[-1], *ends[:-1]], "no gap")
            for part in found:
                self.assertEqual(sorted(part["endpoints"]), everybody)
                self.assertEqual({detail["datacenter"] for detail in part["endpoint_details"]}, {"datacenter1"})
        self.assertEqual(len(get(node, "/storage_service/range_to_endpoint_map/three")), 3 * TOKENS)
        self.assertEqual(sorted(get(node, "/storage_service/natural_endpoints/three?cf=t&key=7")), everybody)
        self.assertEqual(set(pairs(node, "/storage_service/ownership/three").values()), {"1.0"})
        self.assertEqual(get(node, "/storage_service/natural_endpoints/system_traces?cf=events&key="
                             "00000000-0000-0000-0000-000000000000")[2:], [], "two copies")
        of_ring = [float(share) for share in pairs(node, "/storage_service/ownership").values()]
        self.assertAlmostEqual(sum(of_ring), 1)
        self.assertEqual(len(of_ring), 3)

    def shown_by_ctl(self, nodes, ids, down=None):
        asked = nodes[0]
        status = ctl(asked, "status")
        for node in nodes:
            state = "DN" if node is down else "UN"
            self.assertRegex(status, rf"(?m)^{state}  {node.address}  +\S+ \w+ +16 +100\.0% +{ids[node.address]} +rack1")
        self.assertEqual(ctl(asked, "ring").count(" Normal "), 3 * TOKENS)
        cluster = ctl(asked, "describecluster")
        self.assertIn(f"Live: {2 if down else 3}\n", cluster)
        self.assertIn(f"#Nodes: 3 #Down: {1 if down else 0}\n", cluster)
        self.assertEqual("UNREACHABLE" in cluster, bool(down))
        gossip = ctl(asked, "gossipinfo")
        for node in nodes:
            self.assertRegex(gossip, rf"/{node.address}\n  generation:\d+\n(.*\n)+?  HOST_ID:{ids[node.address]}\n")
        self.assertIn("ID                     : " + ids[asked.address], ctl(asked, "info"))
        if down:
            self.assertGreater(get(asked, f"/gossiper/downtime/{down.address}"), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
