"""A real driver on three nodes: it finds them, routes to replicas, and goes on while one dies and comes back.

With scylla-driver tablets are tested too, which cassandra-driver does not know.
"""

import collections
import signal
import threading
import time
import unittest

import cassandra
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import (
    ConstantReconnectionPolicy,
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import SimpleStatement

from test_agreement import KEYSPACE, Nodes, until

HAS_TABLETS = hasattr(cassandra.cluster.Metadata(), "_tablets")
KEYS = 200
# The driver waits so long before it believes an event (`status_event_refresh_window`).
EVENT_SECONDS = 0.1
# What is allowed to go wrong after a node was killed has to end within this time.
TROUBLE_SECONDS = 2
NEVER = 600


class Load:
    """Statements at QUORUM from several threads until told to stop: when which failed, and how many did not."""

    def __init__(self, session, statements):
        self.session, self.statements = session, statements
        self.failures, self.done, self.is_over = [], 0, False
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(4)]

    def run(self, number):
        key = number
        while not self.is_over:
            key += 1
            write, read = self.statements
            try:
                self.session.execute(*((write, (key % KEYS, "v")) if key % 2 else (read, (key % KEYS,))))
                self.done += 1
            except Exception as failure:
                self.failures.append((time.monotonic(), repr(failure)))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def goes_on(self, statements=100):
        """Waits until so many more statements were answered."""
        wanted = self.done + statements
        until("statements to be answered", lambda: self.done >= wanted)


class Drivers(Nodes):
    def cluster(self, nodes, **options):
        """A driver that knows the first node, and hears of all others from it alone: it never tries by itself."""
        policy = TokenAwarePolicy(DCAwareRoundRobinPolicy("datacenter1"))
        options = {"consistency_level": ConsistencyLevel.QUORUM, "load_balancing_policy": policy, **options}
        cluster = Cluster(
            [nodes[0].address],
            execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(**options)},
            reconnection_policy=ConstantReconnectionPolicy(NEVER, None),
            status_event_refresh_window=EVENT_SECONDS,
            topology_event_refresh_window=EVENT_SECONDS,
            schema_event_refresh_window=EVENT_SECONDS,
        )
        self.addCleanup(cluster.shutdown)
        return cluster, cluster.connect()

    def up(self, cluster):
        return {host.address for host in cluster.metadata.all_hosts() if host.is_up}

    def wait_up(self, cluster, nodes):
        wanted = {node.address for node in nodes}
        until(f"the driver to know {wanted} as up", lambda: self.up(cluster) == wanted)

    def routed(self, session, statement, rows):
        """Which nodes coordinated, and how many answers told where the tablet really is."""
        coordinators, corrections = collections.Counter(), 0
        for row in rows:
            future = session.execute_async(statement, row)
            future.result()
            coordinators[future.coordinator_host.address] += 1
            corrections += bool(future.custom_payload)
        return coordinators, corrections

    def test_a_driver_on_three_nodes(self):
        nodes = self.nodes(3, shards=2)
        for node in nodes[:2]:
            node.start().ready()
        self.agree(nodes[:2])
        cluster, session = self.cluster(nodes)
        self.wait_up(cluster, nodes[:2])
        # A node that joins is found by its event.
        nodes[2].start().ready()
        self.wait_up(cluster, nodes)
        self.assertEqual(len({host.host_id for host in cluster.metadata.all_hosts()}), 3)
        until("all tokens", lambda: len(cluster.metadata.token_map.ring) == 48)
        self.agree(nodes)

        for keyspace, copies in (("three", 3), ("one", 1)):
            session.execute(KEYSPACE.format(keyspace).replace("'datacenter1': 3", f"'datacenter1': {copies}"))
            session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v text)")
            self.assertTrue(cluster.control_connection.wait_for_schema_agreement(), "peers show one version")
            self.routing(cluster, session, keyspace, copies)
        self.paging_while_a_node_dies(session, nodes)
        nodes[2].start().ready()
        self.wait_up(cluster, nodes)
        self.a_killed_node_is_missed_by_nobody(cluster, session, nodes)
        self.speculation(nodes)

    def routing(self, cluster, session, keyspace, copies):
        write = session.prepare(f"INSERT INTO {keyspace}.t (k, v) VALUES (?, ?)")
        read = session.prepare(f"SELECT v FROM {keyspace}.t WHERE k = ?")
        self.routed(session, write, [(key, "v") for key in range(KEYS)])
        coordinators, corrections = self.routed(session, read, [(key,) for key in range(KEYS)])
        if copies == 3:
            # Prepared statements are known on all, whoever prepared them.
            self.assertEqual(len(coordinators), 3, coordinators)
        if HAS_TABLETS:
            self.assertEqual(corrections, 0, "once it has learnt the tablets each request comes to a replica")
            known = cluster.metadata._tablets._tablets[(keyspace, "t")]
            self.assertTrue(known, "with two shards a node, half of the first requests came to the wrong one")
            for tablet in known:
                self.assertEqual(len({host for host, _ in tablet.replicas}), copies, "a tablet names all replicas")

    def paging_while_a_node_dies(self, session, nodes):
        statement = SimpleStatement("SELECT k FROM three.t", fetch_size=10, is_idempotent=True)
        found = []
        for row in session.execute(statement):
            found.append(row.k)
            if len(found) == 55:
                nodes[2].kill()
        self.assertEqual(sorted(found), list(range(KEYS)))

    def a_killed_node_is_missed_by_nobody(self, cluster, session, nodes):
        write = session.prepare("INSERT INTO three.t (k, v) VALUES (?, ?)")
        read = session.prepare("SELECT v FROM three.t WHERE k = ?")
        write.is_idempotent = read.is_idempotent = True
        with Load(session, (write, read)) as load:
            load.goes_on()
            self.assertEqual(load.failures, [])
            killed = time.monotonic()
            # Not the one that paging has killed: two ends in a minute keep a node down for some seconds.
            nodes[1].kill()
            self.wait_up(cluster, [nodes[0], nodes[2]])
            load.goes_on()
            nodes[1].start().ready()
            self.wait_up(cluster, nodes)
            load.goes_on()
        late = [(when - killed, what) for when, what in load.failures if when - killed > TROUBLE_SECONDS]
        self.assertEqual(late, [])
        # It coordinates again.
        coordinators, _ = self.routed(session, read, [(key,) for key in range(KEYS)])
        self.assertGreater(coordinators[nodes[1].address], 0, coordinators)
        # The schema changed while the driver was connected; the node that was away takes statements too.
        session.execute("ALTER TABLE three.t ADD w int")
        for row in session.execute("SELECT * FROM three.t WHERE k = 1", execution_profile=EXEC_PROFILE_DEFAULT):
            self.assertIsNone(row.w)

    def speculation(self, nodes):
        policy = ConstantSpeculativeExecutionPolicy(0.1, 2)
        cluster, session = self.cluster(nodes, speculative_execution_policy=policy)
        self.wait_up(cluster, nodes)
        read = session.prepare("SELECT v FROM three.t WHERE k = ?")
        read.is_idempotent = True
        for key in range(20):
            session.execute(read, (key,))
        nodes[0].process.send_signal(signal.SIGSTOP)
        try:
            # The node that the driver asks first stands still in a third of them.
            for key in range(20):
                self.assertEqual(session.execute(read, (key,)).one().v, "v")
        finally:
            nodes[0].process.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
