//! Altered tables and types: data in memory and in open files reads the same as after a restart.

use crate::support::{node, rows, run};
use query::Engine;

const SELECTS: [&str; 5] = [
    "SELECT * FROM t",
    "SELECT * FROM t WHERE k = 1 ORDER BY c DESC",
    "SELECT * FROM l",
    "SELECT * FROM u",
    "SELECT * FROM uc",
];

async fn answers(engine: &Engine) -> Vec<String> {
    let mut answers = Vec::new();
    for select in SELECTS {
        answers.push(select.to_owned());
        answers.extend(rows(engine, select).await);
    }
    answers
}

async fn flush(engine: &Engine, table: &str) {
    let table = engine.storage().schema().table("ks", table).unwrap().id();
    engine.storage().flush(table).await.unwrap();
}

async fn altered(engine: Engine) -> Vec<String> {
    let all = async |statements: &[&str]| {
        for statement in statements {
            run(&engine, statement).await;
        }
    };
    all(&["CREATE TABLE t (k int, c int, v int, gone int, s int static, PRIMARY KEY (k, c))"]).await;
    for n in 0..5 {
        let timestamp = 10_000 * n;
        run(
            &engine,
            &format!(
                "INSERT INTO t (k, c, v, gone, s) VALUES (1, {n}, {n}, {n}, {n}) USING TIMESTAMP {timestamp}"
            ),
        )
        .await;
    }
    flush(&engine, "t").await;
    all(&[
        "INSERT INTO t (k, c, v, gone) VALUES (1, 50, 50, 50) USING TIMESTAMP 30000",
        "ALTER TABLE t DROP gone USING TIMESTAMP 20000",
        "ALTER TABLE t DROP s",
    ])
    .await;
    assert_eq!(
        rows(&engine, "SELECT * FROM t").await,
        ["1 | 0 | 0", "1 | 1 | 1", "1 | 2 | 2", "1 | 3 | 3", "1 | 4 | 4", "1 | 50 | 50"]
    );
    all(&[
        "ALTER TABLE t ADD gone int",
        "ALTER TABLE t ADD s int static",
        "INSERT INTO t (k, c, v, gone) VALUES (1, 100, 100, 100) USING TIMESTAMP 30000",
    ])
    .await;
    // As Cassandra's AlterTest.testDropWithTimestamp: values newer than the drop are visible under the name
    // created again.
    assert_eq!(
        rows(&engine, "SELECT c, gone, s FROM t").await,
        [
            "0 | null | null",
            "1 | null | null",
            "2 | null | null",
            "3 | 3 | null",
            "4 | 4 | null",
            "50 | 50 | null",
            "100 | 100 | null"
        ]
    );
    all(&["UPDATE t SET s = 7 WHERE k = 1", "UPDATE t SET gone = 8 WHERE k = 1 AND c = 0"]).await;

    all(&[
        "CREATE TABLE l (k int PRIMARY KEY, l list<int>, m map<text, int>)",
        "INSERT INTO l (k, l, m) VALUES (1, [1, 2], {'a': 1})",
    ])
    .await;
    flush(&engine, "l").await;
    all(&[
        "UPDATE l SET l = l + [3], m['b'] = 2 WHERE k = 1",
        "ALTER TABLE l DROP l",
        "ALTER TABLE l ADD l list<int>",
        "UPDATE l SET l = l + [4] WHERE k = 1",
        "ALTER TABLE l ADD a int",
        "UPDATE l SET a = 5 WHERE k = 1",
    ])
    .await;
    assert_eq!(rows(&engine, "SELECT k, a, l, m FROM l").await, ["1 | 5 | [4] | {'a': 1, 'b': 2}"]);

    all(&[
        "CREATE TYPE ty (a int, b text)",
        "CREATE TABLE u (k int PRIMARY KEY, f frozen<ty>, n ty, x set<frozen<ty>>)",
        "INSERT INTO u (k, f, n, x) VALUES (1, {a: 1, b: 'x'}, {a: 1, b: 'x'}, {{a: 1, b: 'x'}})",
        "CREATE TABLE uc (k int, c frozen<ty>, v int, PRIMARY KEY (k, c))",
        "INSERT INTO uc (k, c, v) VALUES (1, {a: 1, b: 'x'}, 1)",
    ])
    .await;
    flush(&engine, "u").await;
    flush(&engine, "uc").await;
    all(&[
        "INSERT INTO u (k, f, n) VALUES (2, {a: 2}, {b: 'y'})",
        "ALTER TYPE ty ADD z int",
        "ALTER TYPE ty RENAME a TO first",
        "UPDATE u SET n.z = 9, x = x + {{first: 2, b: 'y', z: 3}} WHERE k = 1",
        "INSERT INTO u (k, f) VALUES (3, {first: 3, z: 4})",
        "INSERT INTO uc (k, c, v) VALUES (1, {first: 1, b: 'x', z: 2}, 2)",
        "INSERT INTO uc (k, c, v) VALUES (1, {first: 0, z: 2}, 3)",
    ])
    .await;
    let memory = answers(&engine).await;
    for table in ["t", "l", "u", "uc"] {
        flush(&engine, table).await;
    }
    assert_eq!(answers(&engine).await, memory, "after a flush");
    let tables: Vec<_> = ["t", "l", "u", "uc"]
        .map(|name| engine.storage().schema().table("ks", name).unwrap().id())
        .into_iter()
        .collect();
    // The altered table is flushed and altered once more, so that the newest files are read by an older
    // header too.
    all(&["ALTER TABLE t DROP v USING TIMESTAMP 25000", "ALTER TABLE t ADD v int"]).await;
    let open = answers(&engine).await;
    for table in tables {
        engine.storage().compact(table).await.unwrap();
    }
    assert_eq!(answers(&engine).await, open, "after a compaction");
    open
}

#[test]
fn open_files_and_memory_follow_alterations_at_once() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let before = node(folder.path(), shards, altered);
        let after = node(folder.path(), shards, |engine| async move { answers(&engine).await });
        assert_eq!(before, after, "with {shards} shards");
    }
}
