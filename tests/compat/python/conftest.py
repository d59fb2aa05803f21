"""Where the node is, one keyspace for the whole run, and how to wait for something to become true."""

import os
import time
import uuid

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import named_tuple_factory

HOST = os.environ.get("CETO_HOST", "127.0.0.1")
PORT = int(os.environ.get("CETO_PORT", "9042"))


def eventually(claim, seconds=30):
    """Asks `claim` until it gives something true, and returns that; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = claim()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(0.02)


def make_cluster(row_factory=named_tuple_factory, **options):
    """A cluster object on the node under test; the caller shuts it down."""
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
        retry_policy=FallthroughRetryPolicy(),
        request_timeout=20,
        row_factory=row_factory,
    )
    options.setdefault("protocol_version", 4)
    options.setdefault("connect_timeout", 20)
    options.setdefault("control_connection_timeout", 20)
    return Cluster([HOST], port=PORT, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **options)


@pytest.fixture(scope="session")
def cluster():
    made = make_cluster()
    yield made
    made.shutdown()


@pytest.fixture(scope="session")
def session(cluster):
    connected = cluster.connect()
    keyspace = f"compat_{uuid.uuid4().hex[:12]}"
    connected.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
    )
    connected.set_keyspace(keyspace)
    yield connected
    connected.execute(f"DROP KEYSPACE {keyspace}")


@pytest.fixture
def table(session, request):
    """Makes a table of the given columns and drops it after the test: `t = table("k int PRIMARY KEY")`."""
    made = []

    def make(columns, options=""):
        name = f"t_{uuid.uuid4().hex[:10]}"
        session.execute(f"CREATE TABLE {name} ({columns}) {options}")
        made.append(name)
        return name

    yield make
    for name in made:
        session.execute(f"DROP TABLE IF EXISTS {name}")


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    count = lambda *kinds: sum(len(reporter.stats.get(kind, [])) for kind in kinds)
    result = os.environ.get("COMPAT_RESULT")
    if result:
        with open(result, "w", encoding="utf-8") as out:
            out.write(
                f"result: {count('passed')} passed, {count('failed', 'error')} failed, "
                f"{count('skipped')} skipped\n"
            )
