//! `system_views` as a client sees it: what happened on any shard is told.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::support::{Options, node, prepare, rows, run};
use query::Engine;
use query::system::ClientRow;

async fn told(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    let insert = prepare(&engine, "INSERT INTO t (k, v) VALUES (1, 1)").await.unwrap();
    for _ in 0..3 {
        insert.execute(&engine, &Options::default()).await.unwrap();
    }
    let table = engine.storage().schema().table("ks", "t").unwrap().id();
    engine.storage().flush(table).await.unwrap();

    let metrics = rows(&engine, "SELECT name, value FROM system_views.cql_metrics").await;
    let value = |name: &str| {
        let row = metrics.iter().find(|row| row.starts_with(&format!("'{name}'")));
        row.unwrap_or_else(|| panic!("no {name} in {metrics:?}")).rsplit(" | ").next().unwrap().to_owned()
    };
    assert_eq!(metrics.len(), 5);
    assert_eq!(value("prepared_statements_count").trim_end_matches(".0"), "1");
    assert_eq!(value("prepared_statements_executed").trim_end_matches(".0"), "3");
    assert_ne!(value("regular_statements_executed").trim_end_matches(".0"), "0");

    for (view, column) in
        [("disk_usage", "mebibytes"), ("max_sstable_size", "mebibytes"), ("max_partition_size", "mebibytes")]
    {
        let query = format!(
            "SELECT {column} FROM system_views.{view} WHERE keyspace_name = 'ks' AND table_name = 't'"
        );
        assert_eq!(rows(&engine, &query).await, ["1"], "{view}");
    }
    run(&engine, "CREATE TABLE spread (k int PRIMARY KEY, v int, w int)").await;
    run(&engine, "INSERT INTO spread (k, v) VALUES (1, 1) USING TIMESTAMP 1000").await;
    run(&engine, "UPDATE spread USING TIMESTAMP 7500000 SET w = 2 WHERE k = 1").await;
    let spread = engine.storage().schema().table("ks", "spread").unwrap().id();
    engine.storage().flush(spread).await.unwrap();
    let durations = "SELECT max_sstable_duration FROM system_views.max_sstable_duration WHERE keyspace_name = 'ks' AND \
         table_name = 'spread'";
    assert_eq!(rows(&engine, durations).await, ["7499"]);
    let settings = rows(&engine, "SELECT value FROM system_views.settings WHERE name = 'cluster_name'").await;
    assert_eq!(settings, ["'Test Cluster'"]);
    let gossip = "SELECT port, dc, native_address_and_port, rpc_ready FROM system_views.gossip_info";
    assert_eq!(rows(&engine, gossip).await, ["7000 | 'datacenter1' | '127.0.0.1:9042' | 'true'"]);
    assert_eq!(rows(&engine, "SELECT name FROM system_views.caches").await, ["'rows'"]);
    let pools = rows(&engine, "SELECT name, active_tasks_limit FROM system_views.thread_pools").await;
    assert!(pools.iter().any(|row| row.starts_with("'statement'") && row.ends_with("| 2")), "{pools:?}");
    for empty in ["clients", "sstable_tasks", "snapshots", "queries", "streaming", "pending_hints"] {
        let found = rows(&engine, &format!("SELECT * FROM system_views.{empty}")).await;
        assert_eq!(found, [""; 0], "{empty}");
    }
}

#[test]
fn what_the_node_does_is_in_its_virtual_tables() {
    node(tempfile::tempdir().unwrap().path(), 2, told);
}

/// Clients of two addresses, more than are listed at a time, in no order.
fn many_clients() -> Vec<ClientRow> {
    let client = |port: u16| ClientRow {
        address: if port.is_multiple_of(3) { [127, 0, 0, 9].into() } else { [127, 0, 0, 1].into() },
        port,
        stage: "ready",
        version: 4,
        options: BTreeMap::new(),
        requests: u64::from(port),
        keyspace: None,
        user: "anonymous".to_owned(),
    };
    (0..1000u32).map(|at| client(1024 + (at * 389 % 1000) as u16)).collect()
}

async fn clients_are_listed(engine: Engine) {
    engine.list_clients_with(Rc::new(|| Box::pin(async { many_clients() })));
    let all = rows(&engine, "SELECT address, port, request_count FROM system_views.clients").await;
    let mut expected: Vec<String> = many_clients()
        .iter()
        .map(|client| {
            let last = if client.port.is_multiple_of(3) { 9 } else { 1 };
            format!("0x7f00000{last} | {} | {}", client.port, client.requests)
        })
        .collect();
    let mut sorted = all.clone();
    expected.sort();
    sorted.sort();
    assert_eq!(sorted, expected);
    let of_one = "SELECT port FROM system_views.clients WHERE address = '127.0.0.9'";
    let ports: Vec<String> = (1024..2024).filter(|port| port % 3 == 0).map(|port| port.to_string()).collect();
    assert_eq!(rows(&engine, of_one).await, ports);
    let last = format!("{of_one} AND port > 1500 ORDER BY port DESC LIMIT 3");
    assert_eq!(rows(&engine, &last).await, ["2022", "2019", "2016"]);
    // One address after the other: a partition does not come in two parts.
    let turns = all.windows(2).filter(|pair| pair[0].split(' ').next() != pair[1].split(' ').next()).count();
    assert_eq!(turns, 1);
}

#[test]
fn thousands_of_clients_are_listed_in_order() {
    node(tempfile::tempdir().unwrap().path(), 1, clients_are_listed);
}
