//! Samplings of partitions count each read and write of a statement once, whichever way it takes.

use crate::support::{Options, int, node, prepare, rows, run};
use query::Engine;
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
