//! Samplings of partitions, and metrics, count each statement once, whichever way it takes.

use crate::support::{Options, int, node, prepare, rows, run};
use query::Engine;
use reactor::metrics::Value;
use storage::TopPartitions;

fn counts(engine: &Engine, top: &TopPartitions) -> Vec<String> {
    let table = engine.storage().schema().table("ks", "t").unwrap().clone();
    let mut counts: Vec<String> = top
        .top
        .iter()
        .map(|one| format!("{} {}", query::partition_key_text::print(&table, &one.key), one.count))
        .collect();
    counts.sort();
    counts
}

async fn once_each(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v int, s int static, PRIMARY KEY (k, c))").await;
    run(&engine, "CREATE TABLE other (k int PRIMARY KEY, v int)").await;
    let insert = prepare(&engine, "INSERT INTO t (k, c, v) VALUES (?, 1, 1)").await.unwrap();
    let select = prepare(&engine, "SELECT v FROM t WHERE k = ? AND c = 1").await.unwrap();
    let table = engine.storage().schema().table("ks", "t").unwrap().id();
    for key in 0..4 {
        insert.execute(&engine, &Options::values([int(key)])).await.unwrap();
    }
    run(&engine, "DELETE FROM t WHERE k = 3 AND c = 1").await;
    engine.storage().begin_sampling(1, Some(vec![table]), 100);
    // Written: as prepared, as text, in a batch, on a condition.
    for _ in 0..5 {
        insert.execute(&engine, &Options::values([int(1)])).await.unwrap();
    }
    run(&engine, "INSERT INTO t (k, c, v) VALUES (2, 1, 1)").await;
    run(&engine, "BEGIN UNLOGGED BATCH UPDATE t SET v = 2 WHERE k = 2 AND c = 1; UPDATE other SET v = 2 WHERE k = 2; APPLY BATCH")
        .await;
    run(&engine, "UPDATE t SET v = 3 WHERE k = 9 AND c = 1 IF EXISTS").await;
    let written = engine.storage().end_sampling(1, 10).unwrap();
    assert_eq!(counts(&engine, &written.writes), ["1 5", "2 2"]);
    assert_eq!(counts(&engine, &written.reads), ["9 1"], "the condition's");

    engine.storage().begin_sampling(1, Some(vec![table]), 100);
    // Read: at once, a row that is not there, one that is deleted, whole partitions, several keys.
    for key in [1, 1, 1, 5, 3] {
        select.execute(&engine, &Options::values([int(key)])).await.unwrap();
    }
    rows(&engine, "SELECT * FROM t WHERE k = 1").await;
    rows(&engine, "SELECT * FROM t WHERE k IN (1, 2)").await;
    rows(&engine, "SELECT count(*) FROM t WHERE k = 2").await;
    rows(&engine, "SELECT * FROM t").await;
    let read = engine.storage().end_sampling(1, 10).unwrap();
    assert_eq!(counts(&engine, &read.reads), ["1 5", "2 2", "3 1", "5 1"]);
    assert_eq!(read.writes.cardinality, 0);

    // Out of files and the row cache.
    engine.storage().flush(table).await.unwrap();
    engine.storage().begin_sampling(1, None, 100);
    for _ in 0..3 {
        select.execute(&engine, &Options::values([int(1)])).await.unwrap();
    }
    select.execute(&engine, &Options::values([int(3)])).await.unwrap();
    let read = engine.storage().end_sampling(1, 10).unwrap();
    assert_eq!(counts(&engine, &read.reads), ["1 3", "3 1"]);
}

#[test]
fn each_read_and_write_is_counted_once() {
    node(tempfile::tempdir().unwrap().path(), 1, once_each);
}

/// The sum of a metric over its labels on this shard; of a histogram, its count.
async fn metric(engine: &Engine, name: &str, label: Option<&str>) -> u64 {
    engine.settle_metrics().await;
    let samples = reactor::metrics::collect().await;
    let of_name = samples.iter().filter(|sample| {
        let labelled = |label: &str| sample.labels.iter().any(|(_, value)| value == label);
        sample.name == name && label.is_none_or(labelled)
    });
    of_name
        .map(|sample| match &sample.value {
            Value::Counter(count) => *count,
            Value::Gauge(level) => *level as u64,
            Value::Histogram(histogram) => histogram.count,
            Value::Seconds(_) => panic!("{name} is a time"),
        })
        .sum()
}

async fn each_once(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))").await;
    let metrics = [
        ("scylla_cql_inserts", Some("no")),
        ("scylla_cql_inserts", Some("yes")),
        ("scylla_cql_updates", Some("no")),
        ("scylla_cql_updates", Some("yes")),
        ("scylla_cql_deletes", Some("no")),
        ("scylla_cql_batches", Some("no")),
        ("scylla_cql_batches_pure_unlogged", None),
        ("scylla_cql_statements_in_batches", Some("no")),
        ("scylla_cql_reads", None),
        ("scylla_cql_rows_read", None),
        ("scylla_cql_reverse_queries", None),
        ("scylla_cql_unpaged_select_queries", None),
        ("scylla_cql_filtered_read_requests", None),
        ("ceto_coordinator_tombstones_read", None),
        ("scylla_query_processor_queries", None),
        ("scylla_query_processor_statements_prepared", None),
        ("scylla_storage_proxy_coordinator_cas_write_condition_not_met", None),
        ("scylla_storage_proxy_coordinator_cas_write_latency", None),
        ("scylla_storage_proxy_coordinator_write_latency", None),
        ("scylla_storage_proxy_coordinator_read_latency", None),
        ("ceto_coordinator_range_latency", None),
    ];
    let mut before = Vec::new();
    for (name, label) in metrics {
        before.push(metric(&engine, name, label).await);
    }
    let insert = prepare(&engine, "INSERT INTO t (k, c, v) VALUES (1, ?, 1)").await.unwrap();
    for c in 0..5 {
        insert
            .execute(&engine, &Options { values: vec![(None, int(c))], ..Options::default() })
            .await
            .unwrap();
    }
    run(&engine, "INSERT INTO t (k, c, v) VALUES (1, 1, 1) IF NOT EXISTS").await;
    run(&engine, "UPDATE t SET v = 2 WHERE k = 1 AND c = 1").await;
    run(&engine, "UPDATE t SET v = 3 WHERE k = 1 AND c = 1 IF v = 2").await;
    run(&engine, "DELETE FROM t WHERE k = 1 AND c = 2").await;
    run(&engine, "BEGIN UNLOGGED BATCH INSERT INTO t (k, c, v) VALUES (1, 7, 1); DELETE FROM t WHERE k = 1 AND c = 3; APPLY BATCH")
        .await;
    run(&engine, "SELECT * FROM t WHERE k = 1 AND c = 1").await;
    run(&engine, "SELECT * FROM t WHERE k = 1 ORDER BY c DESC").await;
    run(&engine, "SELECT * FROM t WHERE v = 1 ALLOW FILTERING").await;
    let mut added = Vec::new();
    for ((name, label), before) in metrics.into_iter().zip(before) {
        added.push((name, label.unwrap_or(""), metric(&engine, name, label).await - before));
    }
    assert_eq!(
        added,
        [
            ("scylla_cql_inserts", "no", 5),
            ("scylla_cql_inserts", "yes", 1),
            ("scylla_cql_updates", "no", 1),
            ("scylla_cql_updates", "yes", 1),
            ("scylla_cql_deletes", "no", 1),
            ("scylla_cql_batches", "no", 1),
            ("scylla_cql_batches_pure_unlogged", "", 1),
            ("scylla_cql_statements_in_batches", "no", 2),
            ("scylla_cql_reads", "", 3),
            // One; of the partition 0, 1, 4 and 7; and those less 1.
            ("scylla_cql_rows_read", "", 8),
            ("scylla_cql_reverse_queries", "", 1),
            ("scylla_cql_unpaged_select_queries", "", 3),
            ("scylla_cql_filtered_read_requests", "", 1),
            ("ceto_coordinator_tombstones_read", "", 4),
            ("scylla_query_processor_queries", "", 13),
            ("scylla_query_processor_statements_prepared", "", 1),
            ("scylla_storage_proxy_coordinator_cas_write_condition_not_met", "", 1),
            ("scylla_storage_proxy_coordinator_cas_write_latency", "", 2),
            ("scylla_storage_proxy_coordinator_write_latency", "", 8),
            ("scylla_storage_proxy_coordinator_read_latency", "", 2),
            ("ceto_coordinator_range_latency", "", 1),
        ]
    );
}

#[test]
fn a_statement_counts_once() {
    node(tempfile::tempdir().unwrap().path(), 1, each_once);
}
