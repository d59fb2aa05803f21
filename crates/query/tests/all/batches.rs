//! Warnings of batches, and batches that are too large, as Cassandra 5.0.6 answered the same statements.

use crate::support::{client, node, node_with, parameters, run};
use query::guardrails::Threshold;
use query::{Engine, Response};

/// Warnings, or the error.
async fn warnings(engine: &Engine, statement: &str) -> Result<Vec<String>, String> {
    let mut out = Response::default();
    let done = engine.query(&client(), statement, &parameters(), &mut out).await;
    done.map(|()| out.warnings).map_err(|error| error.to_string())
}

fn many(count: usize, statement: impl Fn(usize) -> String) -> String {
    (0..count).map(statement).collect::<Vec<_>>().join(" ")
}

async fn check(engine: &Engine, statement: String, expected: Result<&[&str], &str>) {
    let found = warnings(engine, &statement).await;
    let expected =
        expected.map(|all| all.iter().map(|one| (*one).to_owned()).collect()).map_err(str::to_owned);
    assert_eq!(found, expected, "{}…", &statement[..statement.len().min(80)]);
}

const NO_GRACE: &str = "Executing a LOGGED BATCH on table [ks.x], configured with a gc_grace_seconds of 0. The \
gc_grace_seconds is used to TTL batchlog entries, so setting gc_grace_seconds too low on tables involved in an atomic batch \
might cause batchlog entries to expire before being replayed.";

async fn sizes(engine: Engine) {
    run(&engine, "CREATE TABLE w (k int, c int, v blob, PRIMARY KEY (k, c))").await;
    run(&engine, "CREATE TABLE x (k int PRIMARY KEY, v int, w text) WITH gc_grace_seconds = 0").await;
    let blobs = |keys: [i32; 2], bytes: usize| {
        let insert =
            |key, c| format!("INSERT INTO w (k, c, v) VALUES ({key}, {c}, 0x{})", "00".repeat(bytes));
        format!("BEGIN BATCH {} {} APPLY BATCH", insert(keys[0], 1), insert(keys[1], 2))
    };
    let warning = |bytes: usize| {
        format!(
            "Batch for [ks.w] is of size {bytes}, exceeding specified threshold of 5120 by {}.",
            bytes - 5120
        )
    };
    check(&engine, blobs([1, 2], 2400), Ok(&[])).await;
    for (bytes, size) in [(2500, 5148), (2529, 5206), (25_000, 50_148), (25_500, 51_148)] {
        check(&engine, blobs([1, 2], bytes), Ok(&[&warning(size)])).await;
    }
    check(&engine, blobs([1, 2], 26_000), Err("Batch too large")).await;
    // One partition is one write, whatever its size.
    check(&engine, blobs([1, 1], 30_000), Ok(&[])).await;
    let inserts = |count| many(count, |k| format!("INSERT INTO x (k, v) VALUES ({k}, 1)"));
    check(&engine, format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", inserts(10)), Ok(&[])).await;
    check(
        &engine,
        format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", inserts(11)),
        Ok(&["Unlogged batch covering 11 partitions detected against table [ks.x]. You should use a logged batch for \
             atomicity, or asynchronous writes for performance."]),
    )
    .await;
    check(
        &engine,
        format!("BEGIN UNLOGGED BATCH {} INSERT INTO w (k, c) VALUES (55, 1) APPLY BATCH", inserts(11)),
        Ok(&["Unlogged batch covering 12 partitions detected against tables [ks.w, ks.x]. You should use a logged batch \
             for atomicity, or asynchronous writes for performance."]),
    )
    .await;
    check(&engine, format!("BEGIN BATCH {} APPLY BATCH", inserts(1)), Ok(&[NO_GRACE])).await;
    let rows = many(100, |k| format!("INSERT INTO x (k, v, w) VALUES ({k}, 1, 'abc')"));
    let large = "Batch for [ks.x] is of size 9700, exceeding specified threshold of 5120 by 4580.";
    check(&engine, format!("BEGIN BATCH {rows} APPLY BATCH"), Ok(&[NO_GRACE, large])).await;
    let deletions = many(300, |k| format!("DELETE FROM x WHERE k = {k}"));
    let large = "Batch for [ks.x] is of size 8700, exceeding specified threshold of 5120 by 3580.";
    check(&engine, format!("BEGIN BATCH {deletions} APPLY BATCH"), Ok(&[NO_GRACE, large])).await;
}

#[test]
fn batches_warn_of_their_size_and_spread() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, sizes);
    }
}

/// A batch that had no time fails, whatever its kind and how many partitions it is about.
async fn no_time(engine: Engine) {
    run(&engine, "CREATE TABLE x (k int PRIMARY KEY, v int)").await;
    for kind in ["", "UNLOGGED "] {
        for keys in [1, 3] {
            let inserts = many(keys, |k| format!("INSERT INTO x (k, v) VALUES ({k}, 1);"));
            let statement = format!("BEGIN {kind}BATCH USING TIMEOUT 0ms {inserts} APPLY BATCH");
            let error = warnings(&engine, &statement).await.expect_err(&statement);
            assert!(error.contains("timed out"), "{statement}: {error}");
            let statement = format!("BEGIN {kind}BATCH USING TIMEOUT 1h {inserts} APPLY BATCH");
            assert_eq!(warnings(&engine, &statement).await, Ok(Vec::new()), "{statement}");
        }
    }
}

#[test]
fn the_timeout_of_a_batch_is_that_of_every_kind() {
    for shards in [1, 2] {
        node(tempfile::tempdir().unwrap().path(), shards, no_time);
    }
}

async fn other_sizes(engine: Engine) {
    run(&engine, "CREATE TABLE x (k int PRIMARY KEY, v text)").await;
    let batch = |count: usize, bytes: usize| {
        let value = "a".repeat(bytes);
        let inserts = many(count, |k| format!("INSERT INTO x (k, v) VALUES ({k}, '{value}');"));
        format!("BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
    };
    check(&engine, batch(20, 3000), Ok(&[])).await;
    check(&engine, batch(60, 2000), Err("Batch too large")).await;
}

#[test]
fn what_is_too_large_is_up_to_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let adjust = |config: &mut query::EngineConfig| {
        config.guardrails.batch_bytes = Threshold { warn: None, fail: Some(100_000) };
        config.guardrails.unlogged_batch_partitions = None;
    };
    node_with(folder.path(), 1, adjust, other_sizes);
}
