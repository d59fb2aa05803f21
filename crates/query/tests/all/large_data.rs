//! Large partitions, rows and cells that table files list, in `system.large_partitions` and the like.

use crate::support::{Adjust, node_of, rows, run};
use query::Engine;
use storage::LargeLimits;

const ADJUST: Adjust = Adjust {
    engine: |_| {},
    storage: |config| {
        config.auto_compaction = false;
        config.large_limits = LargeLimits {
            partition_bytes: 5000,
            rows: 20,
            row_bytes: 3000,
            cell_bytes: 2000,
            elements: 10,
            records_max: 2,
        };
    },
};

const PARTITIONS: &str = "SELECT partition_key, rows, dead_rows, range_tombstones FROM system.large_partitions \
                          WHERE keyspace_name = 'ks' AND table_name = 'l'";
const ROWS: &str = "SELECT partition_key, clustering_key FROM system.large_rows";
const CELLS: &str =
    "SELECT partition_key, clustering_key, column_name, collection_elements FROM system.large_cells";

async fn flush(engine: &Engine) {
    let table = engine.storage().schema().table("ks", "l").unwrap().id();
    engine.storage().flush(table).await.unwrap();
}

/// Rows in any order: the table orders them by file and size.
async fn sorted(engine: &Engine, statement: &str) -> Vec<String> {
    let mut found = rows(engine, statement).await;
    found.sort();
    found
}

/// How many files the three tables name.
async fn files(engine: &Engine) -> usize {
    let mut names = Vec::new();
    for table in ["large_partitions", "large_rows", "large_cells"] {
        names.extend(rows(engine, &format!("SELECT sstable_name FROM system.{table}")).await);
    }
    assert!(
        names.iter().all(|name| name.starts_with("'me-") && name.ends_with("-big-Data.db'")),
        "{names:?}"
    );
    names.sort();
    names.dedup();
    names.len()
}

async fn noted(engine: Engine) -> [Vec<String>; 3] {
    run(
        &engine,
        "CREATE TABLE l (k text, c int, s text static, v text, m map<int, text>, f frozen<list<int>>, PRIMARY KEY (k, c))",
    )
    .await;
    let text = |length: usize| "x".repeat(length);
    // As much as may be is not too much.
    run(&engine, &format!("INSERT INTO l (k, c, v) VALUES ('small', 1, '{}')", text(2000))).await;
    let ten: Vec<String> = (0..10).map(|key| format!("{key}: 'y'")).collect();
    run(&engine, &format!("UPDATE l SET m = {{{}}} WHERE k = 'small' AND c = 2", ten.join(", "))).await;
    for number in 0..20 {
        run(&engine, &format!("INSERT INTO l (k, c) VALUES ('twenty', {number})")).await;
    }
    flush(&engine).await;
    assert_eq!(files(&engine).await, 0);

    for number in 0..21 {
        run(&engine, &format!("INSERT INTO l (k, c, v) VALUES ('many', {number}, 'v')")).await;
    }
    for number in [3, 4, 50] {
        run(&engine, &format!("DELETE FROM l WHERE k = 'many' AND c = {number}")).await;
    }
    run(&engine, "DELETE FROM l WHERE k = 'many' AND c > 100 AND c < 200").await;
    run(&engine, &format!("INSERT INTO l (k, c, v) VALUES ('wide', 1, '{}')", text(2500))).await;
    run(&engine, &format!("INSERT INTO l (k, c, v) VALUES ('wide', 2, '{}')", text(4000))).await;
    run(&engine, &format!("UPDATE l SET s = '{}' WHERE k = 'static'", text(3500))).await;
    flush(&engine).await;
    assert_eq!(files(&engine).await, 1);
    assert_eq!(sorted(&engine, PARTITIONS).await, ["'many' | 22 | 3 | 2", "'wide' | 2 | 0 | 0"]);
    assert_eq!(sorted(&engine, ROWS).await, ["'static' | ''", "'wide' | '2'"]);
    let largest = ["'static' | '' | 's' | 0", "'wide' | '2' | 'v' | 0"];
    assert_eq!(sorted(&engine, CELLS).await, largest, "two of three are kept");
    for (table, size, least) in [
        ("large_partitions", "partition_size", 6500),
        ("large_rows", "row_size", 3500),
        ("large_cells", "cell_size", 3500),
    ] {
        let statement = format!(
            "SELECT partition_key FROM system.{table} WHERE {size} >= {least} AND {size} < {least} + 600 \
                                 AND compaction_time > '2020-01-01' ALLOW FILTERING"
        );
        assert!(!rows(&engine, &statement).await.is_empty(), "{statement}");
    }

    let eleven: Vec<String> = (0..11).map(|key| format!("{key}: 'y'")).collect();
    run(&engine, &format!("UPDATE l SET m = {{{}}} WHERE k = 'map' AND c = -1", eleven.join(", "))).await;
    // A frozen one is one value.
    run(&engine, "INSERT INTO l (k, c, f) VALUES ('frozen', 1, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])")
        .await;
    flush(&engine).await;
    assert_eq!(files(&engine).await, 2);
    let of_map = "'map' | '-1' | 'm' | 11";
    assert_eq!(sorted(&engine, CELLS).await, [of_map, largest[0], largest[1]]);

    // Data that a compaction writes is recorded again, in the new file.
    let table = engine.storage().schema().table("ks", "l").unwrap().id();
    engine.storage().compact(table).await.unwrap();
    assert_eq!(files(&engine).await, 1);
    assert_eq!(sorted(&engine, CELLS).await, largest);
    [sorted(&engine, PARTITIONS).await, sorted(&engine, ROWS).await, sorted(&engine, CELLS).await]
}

async fn gone(engine: Engine) -> [Vec<String>; 3] {
    let found =
        [sorted(&engine, PARTITIONS).await, sorted(&engine, ROWS).await, sorted(&engine, CELLS).await];
    run(&engine, "TRUNCATE l").await;
    assert_eq!(files(&engine).await, 0);
    found
}

#[test]
fn large_data_is_listed_as_long_as_its_file_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let before = node_of(folder.path(), 1, ADJUST, noted);
    assert_eq!(before[0].len(), 2);
    assert_eq!(node_of(folder.path(), 1, ADJUST, gone), before, "after a restart");
}
