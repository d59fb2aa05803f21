//! Levels that one node cannot reach: the contents of UNAVAILABLE, as recorded from Cassandra 5.0.6.

use crate::support::{Options, node, query, run};
use query::{Engine, QueryError};

const TWO: u16 = 2;
const QUORUM: u16 = 4;
const EACH_QUORUM: u16 = 7;
const SERIAL: u16 = 8;
const LOCAL_SERIAL: u16 = 9;

async fn told(engine: Engine) {
    const THREE: &str = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    run(&engine, &format!("CREATE KEYSPACE three WITH replication = {THREE}")).await;
    run(&engine, "CREATE TABLE three.t (k int PRIMARY KEY, v int)").await;
    run(&engine, "CREATE TABLE three.c (k int PRIMARY KEY, v counter)").await;
    const INSERT: &str = "INSERT INTO three.t (k, v) VALUES (1, 1)";
    const CONDITIONAL: &str = "INSERT INTO three.t (k, v) VALUES (1, 1) IF NOT EXISTS";
    const SELECT: &str = "SELECT * FROM three.t WHERE k = 1";
    for (statement, consistency, serial_consistency, expected) in [
        (INSERT, QUORUM, None, "QUORUM"),
        (INSERT, EACH_QUORUM, None, "EACH_QUORUM"),
        (SELECT, QUORUM, None, "QUORUM"),
        ("SELECT * FROM three.t", QUORUM, None, "QUORUM"),
        ("UPDATE three.c SET v = v + 1 WHERE k = 1", QUORUM, None, "QUORUM"),
        // The serial level fails first, and is reported as the quorum that it requires.
        (CONDITIONAL, QUORUM, None, "QUORUM"),
        (CONDITIONAL, QUORUM, Some(LOCAL_SERIAL), "LOCAL_QUORUM"),
        (SELECT, SERIAL, None, "QUORUM"),
        (SELECT, LOCAL_SERIAL, None, "LOCAL_QUORUM"),
        ("SELECT * FROM system.local", TWO, None, "TWO"),
        ("SELECT * FROM system_schema.tables WHERE keyspace_name = 'three'", TWO, None, "TWO"),
    ] {
        let options = Options { consistency, serial_consistency, ..Options::default() };
        match query(&engine, statement, &options).await {
            Err(QueryError::Unavailable { consistency, required: 2, alive: 1 }) => {
                assert_eq!(consistency.to_string(), expected, "{statement}");
            }
            other => panic!("{statement}: {other:?}"),
        }
    }
    let refused = |kind: &str| {
        let name = format!("scylla_storage_proxy_coordinator_{kind}_unavailable");
        reactor::metrics::counter(&name, "", &[]).get()
    };
    assert_eq!(["read", "cas_read", "write", "cas_write"].map(refused), [4, 2, 3, 2]);
    for (statement, consistency) in
        [("SELECT * FROM system.local", QUORUM), ("SELECT * FROM system_views.clients", TWO)]
    {
        let options = Options { consistency, ..Options::default() };
        query(&engine, statement, &options).await.expect(statement);
    }
}

#[test]
fn what_is_not_reached_is_told_by_its_level() {
    node(tempfile::tempdir().unwrap().path(), 1, told);
}
