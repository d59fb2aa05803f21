//! `system_views` as a client sees it: events on any shard are listed.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::support::{Options, int, node, prepare, rows, run, text};
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

async fn sizes(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v text)").await;
    run(&engine, "CREATE TABLE nothing (k int PRIMARY KEY)").await;
    let insert = prepare(&engine, "INSERT INTO t (k, v) VALUES (?, ?)").await.unwrap();
    for key in 0..800 {
        insert.execute(&engine, &Options::values([int(key), text(&"v".repeat(1_000))])).await.unwrap();
        if key == 399 {
            let table = engine.storage().schema().table("ks", "t").unwrap().id();
            engine.storage().flush(table).await.unwrap();
        }
    }
    let columns = "range_start, range_end, mean_partition_size, partitions_count";
    let of = |table: &str| format!("FROM system.{table} WHERE keyspace_name = 'ks' AND table_name");
    let found = rows(&engine, &format!("SELECT {columns} {} = 't'", of("size_estimates"))).await;
    let mut parts: Vec<Vec<i64>> = found
        .iter()
        .map(|row| row.split(" | ").map(|value| value.trim_matches('\'').parse().unwrap()).collect())
        .collect();
    parts.sort_unstable();
    // The ranges are those between the node's tokens, from the first to the last.
    assert_eq!(parts.len(), 16);
    assert_eq!((parts[0][0], parts[15][1]), (i64::MIN, i64::MAX));
    assert!(parts.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{parts:?}");
    // Sizes of table files and memtables on both shards; a histogram rounds sizes in steps of a fifth.
    assert_eq!(parts.iter().map(|part| part[3]).sum::<i64>(), 800, "{parts:?}");
    assert!(parts.iter().all(|part| part[3] >= 20 && (900..2_000).contains(&part[2])), "{parts:?}");
    let zeros = rows(&engine, &format!("SELECT {columns} {} = 'nothing'", of("size_estimates"))).await;
    assert!(zeros.len() == 16 && zeros.iter().all(|row| row.ends_with("| 0 | 0")), "{zeros:?}");
    for kind in ["primary", "local_primary"] {
        let same = format!("SELECT {columns} {} = 't' AND range_type = '{kind}'", of("table_estimates"));
        assert_eq!(rows(&engine, &same).await, found, "{kind}");
    }
    let mut backwards = rows(
        &engine,
        &format!(
            "SELECT {columns} {} = 't' ORDER BY table_name DESC, range_start DESC",
            of("size_estimates")
        ),
    )
    .await;
    backwards.reverse();
    assert_eq!(backwards, found);
    let tables = "SELECT table_name FROM system.size_estimates WHERE keyspace_name = 'ks'";
    let mut names = rows(&engine, tables).await;
    names.dedup();
    assert_eq!(names, ["'nothing'", "'t'"]);
    // Keyspaces of the system that are stored count, as in Cassandra; those that are made up do not.
    let mut keyspaces = rows(&engine, "SELECT keyspace_name FROM system.size_estimates").await;
    keyspaces.dedup();
    keyspaces.sort_unstable();
    assert_eq!(keyspaces, ["'ks'", "'system_auth'", "'system_distributed'", "'system_traces'"]);
}

#[test]
fn sizes_of_tables_are_estimated_by_ranges_of_the_ring() {
    for shards in [1, 2] {
        node(tempfile::tempdir().unwrap().path(), shards, sizes);
    }
}

async fn scyllas(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    let client = |port| ClientRow {
        address: [127, 0, 0, 1].into(),
        port,
        stage: "ready",
        version: 5,
        options: BTreeMap::from([("DRIVER_NAME".to_owned(), "a driver".to_owned())]),
        requests: 7,
        keyspace: None,
        user: "anonymous".to_owned(),
    };
    engine.list_clients_with(Rc::new(move || Box::pin(async move { vec![client(2), client(1)] })));
    let clients = "SELECT port, client_type, connection_stage, driver_name, shard_id FROM system.clients";
    assert_eq!(
        rows(&engine, clients).await,
        ["1 | 'cql' | 'READY' | 'a driver' | 0", "2 | 'cql' | 'READY' | 'a driver' | 0"]
    );
    let config = "SELECT type, value FROM system.config WHERE name = 'cluster_name'";
    assert_eq!(rows(&engine, config).await, ["'string' | 'Test Cluster'"]);
    let servers = "SELECT name, is_running, listen_addresses, protocol FROM system.protocol_servers";
    assert_eq!(rows(&engine, servers).await, ["'native' | true | ['127.0.0.1:9042'] | 'cql'"]);
    assert_eq!(rows(&engine, "SELECT * FROM system.snapshots").await, [""; 0]);

    let info = async |group: &str, item: &str| {
        let asked =
            format!("SELECT value FROM system.runtime_info WHERE group = '{group}' AND item = '{item}'");
        let values = rows(&engine, &asked).await;
        assert_eq!(values.len(), 1, "{group}.{item}");
        values[0].trim_matches('\'').to_owned()
    };
    let number = async |group: &str, item: &str| info(group, item).await.parse::<u64>().expect("a number");
    assert_eq!(info("native_transport", "active").await, "true");
    assert_eq!(info("incremental_backup", "enabled").await, "false");
    assert!(number("generic", "uptime").await < 3600);
    for group in ["memory", "memtable"] {
        let prefix = if group == "memory" { "" } else { "memory_" };
        let part = async |item: &str| number(group, &format!("{prefix}{item}")).await;
        let (used, free, total) = (part("used").await, part("free").await, part("total").await);
        assert!(total > 0 && used + free == total, "{group}: {used} + {free}, {total}");
    }
    run(&engine, "INSERT INTO t (k, v) VALUES (1, 1)").await;
    assert!(number("memtable", "entries").await > 0);
    let groups = rows(&engine, "SELECT DISTINCT group FROM system.runtime_info").await;
    assert_eq!(groups.len(), 8, "{groups:?}");

    let ring = "SELECT start_token, end_token, dc FROM system.token_ring WHERE keyspace_name = 'ks'";
    let ring = rows(&engine, ring).await;
    assert_eq!(ring.len(), 16, "{ring:?}");
    let first = format!("'{}' | '{}' | 'datacenter1'", i64::MAX, i64::MIN + (1 << 60) - 1);
    assert!(ring.contains(&first), "{ring:?}");
    assert_eq!(rows(&engine, "SELECT DISTINCT keyspace_name FROM system.token_ring").await.len(), 4);

    let id = engine.storage().schema().table("ks", "t").unwrap().id().0;
    let id = format!("0x{}", id.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let tablets = "SELECT last_token, replicas, tablet_count, table_name FROM system.tablets WHERE keyspace_name = 'ks' \
         AND table_id = blob_as_uuid(";
    let tablets = rows(&engine, &format!("{tablets}{id})")).await;
    let host = "07070707-0707-0707-0707-070707070707";
    let expected: Vec<String> = [(-1_i64, 0), (i64::MAX, 1)]
        .map(|(last, shard)| format!("{last} | [({host}, {shard})] | 2 | 't'"))
        .into();
    assert_eq!(tablets, expected);
    let named = rows(&engine, "SELECT table_name FROM system.tablets").await;
    assert_eq!(named.iter().filter(|name| *name == "'t'").count(), 2, "{named:?}");
}

#[test]
fn tables_that_scylladb_documents_tell_of_the_node() {
    node(tempfile::tempdir().unwrap().path(), 2, scyllas);
}

/// The row of table `ks.t` in a view.
async fn of_t(engine: &Engine, view: &str, columns: &str) -> String {
    let text =
        format!("SELECT {columns} FROM system_views.{view} WHERE keyspace_name = 'ks' AND table_name = 't'");
    let mut found = rows(engine, &text).await;
    assert_eq!(found.len(), 1, "{view}");
    found.remove(0)
}

async fn requests_are_told(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))").await;
    run(&engine, "CREATE TABLE n (k int PRIMARY KEY, n counter)").await;
    for view in ["coordinator_read_latency", "local_scan_latency", "coordinator_write_latency"] {
        let before = of_t(&engine, view, "count, p50th_ms, p99th_ms, max_ms, per_second").await;
        assert_eq!(before.replace(".0", ""), "0 | 0 | 0 | 0 | 0", "{view}");
    }
    // Keys of both shards, prepared and not, so that writes end in each of the ways they have.
    let insert = prepare(&engine, "INSERT INTO t (k, c, v) VALUES (?, 1, 1)").await.unwrap();
    for key in 0..8_i32 {
        insert.execute(&engine, &Options::values([int(key)])).await.unwrap();
    }
    run(&engine, "INSERT INTO t (k, c, v) VALUES (1, 2, 2)").await;
    run(&engine, "DELETE FROM t WHERE k = 1 AND c = 3").await;
    run(&engine, "UPDATE n SET n = n + 1 WHERE k = 1").await;
    for view in ["coordinator_write_latency", "local_write_latency"] {
        assert_eq!(of_t(&engine, view, "count").await, "10", "{view}");
    }
    // Of a batch one for each table.
    run(
        &engine,
        "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (1, 1, 2) INSERT INTO t (k, c, v) VALUES (2, 1, 2) APPLY BATCH",
    )
    .await;
    run(&engine, "BEGIN UNLOGGED BATCH INSERT INTO t (k, c, v) VALUES (1, 1, 2) APPLY BATCH").await;
    run(&engine, "BEGIN COUNTER BATCH UPDATE n SET n = n + 1 WHERE k = 2 APPLY BATCH").await;
    assert_eq!(of_t(&engine, "coordinator_write_latency", "count").await, "12");
    let batches = "SELECT name, p50th, p999th, max FROM system_views.batch_metrics";
    let mut batches = rows(&engine, batches).await;
    batches.sort();
    let batches: Vec<String> = batches.iter().map(|row| row.replace(".0", "")).collect();
    assert_eq!(
        batches,
        [
            "'partitions_per_counter_batch' | 1 | 1 | 1",
            "'partitions_per_logged_batch' | 2 | 2 | 2",
            "'partitions_per_unlogged_batch' | 1 | 1 | 1"
        ]
    );

    let point = prepare(&engine, "SELECT v FROM t WHERE k = ? AND c = 1").await.unwrap();
    for key in 0..8_i32 {
        point.execute(&engine, &Options::values([int(key)])).await.unwrap();
    }
    rows(&engine, "SELECT * FROM t WHERE k = 1").await;
    rows(&engine, "SELECT * FROM t WHERE k IN (2, 3)").await;
    for view in ["coordinator_read_latency", "local_read_latency"] {
        assert_eq!(of_t(&engine, view, "count").await, "11", "{view}");
    }
    assert_eq!(rows(&engine, "SELECT * FROM t WHERE v = 2 ALLOW FILTERING").await.len(), 3);
    assert_eq!(of_t(&engine, "coordinator_scan_latency", "count").await, "1");
    assert_eq!(of_t(&engine, "rows_per_read", "count, p50th, max").await.replace(".0", ""), "12 | 1 | 10");
    // The row that was deleted.
    assert_eq!(
        of_t(&engine, "tombstones_per_read", "count, p50th, max").await.replace(".0", ""),
        "12 | 0 | 1"
    );
    let took = of_t(&engine, "coordinator_read_latency", "max_ms").await;
    assert!(took.parse::<f64>().unwrap() >= 0.0, "{took}");
    // Of every table there is a row.
    let all = rows(&engine, "SELECT table_name FROM system_views.coordinator_read_latency").await;
    assert_eq!(all.len(), rows(&engine, "SELECT table_name FROM system_views.disk_usage").await.len());
}

#[test]
fn what_tables_are_asked_for_is_in_virtual_tables() {
    node(tempfile::tempdir().unwrap().path(), 2, requests_are_told);
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
