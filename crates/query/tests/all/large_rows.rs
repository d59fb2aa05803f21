//! Rows that grow large from writes that are each allowed, and writes that are not.

use crate::support::{body, node, rows, run};
use query::Engine;

/// Elements of one update; three of them are more than 16 bits count.
const ELEMENTS: u32 = 40_000;
const MIB: usize = 1 << 20;

fn joined<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

async fn grown(engine: Engine) -> Vec<String> {
    run(&engine, "CREATE TABLE big (k int PRIMARY KEY, s set<int>, m map<int, int>, l list<int>)").await;
    let table = engine.storage().schema().table("ks", "big").unwrap().id();
    let mut expected = Vec::new();
    for from in [0, ELEMENTS, 2 * ELEMENTS] {
        let numbers = || from..from + ELEMENTS;
        let pairs = joined(numbers().map(|n| format!("{n}: {n}")));
        let numbers = joined(numbers());
        run(&engine, &format!("UPDATE big SET s = s + {{{numbers}}} WHERE k = 1")).await;
        run(&engine, &format!("UPDATE big SET m = m + {{{pairs}}} WHERE k = 1")).await;
        run(&engine, &format!("UPDATE big SET l = l + [{numbers}] WHERE k = 1")).await;
        expected.extend(from..from + ELEMENTS);
        let columns = ["s", "l"].map(|column| (column, joined(expected.iter())));
        for (column, numbers) in columns {
            let found = rows(&engine, &format!("SELECT {column} FROM big WHERE k = 1")).await;
            assert!(found[0].contains(&numbers), "{column} with {} elements", expected.len());
        }
    }
    let before = rows(&engine, "SELECT * FROM big").await;
    engine.storage().flush(table).await.unwrap();
    assert!(rows(&engine, "SELECT * FROM big").await == before, "from a table file");
    run(&engine, &format!("UPDATE big SET s = s + {{{}}} WHERE k = 1", joined(0..ELEMENTS))).await;
    engine.storage().flush(table).await.unwrap();
    assert!(rows(&engine, "SELECT * FROM big").await == before, "from two table files");
    engine.storage().compact(table).await.unwrap();
    assert!(rows(&engine, "SELECT * FROM big").await == before, "from a compacted table file");
    run(&engine, "UPDATE big SET l = l + [-1] WHERE k = 1").await;
    rows(&engine, "SELECT * FROM big").await
}

#[test]
fn updates_of_a_collection_may_add_up_to_more_elements_than_one_update_takes() {
    let folder = tempfile::tempdir().unwrap();
    let before = node(folder.path(), 1, grown);
    let after = node(folder.path(), 1, |engine| async move { rows(&engine, "SELECT * FROM big").await });
    assert!(before == after, "after a restart");
}

async fn values(engine: Engine) {
    run(&engine, "CREATE TABLE v (k text, c int, v text, l list<text>, PRIMARY KEY (k, c))").await;
    let table = engine.storage().schema().table("ks", "v").unwrap().id();
    // Half of a commit-log segment. The text of such a statement is just below the limit for texts.
    let limit = engine.storage().mutation_bytes_max();
    let insert = |key: &str, bytes: usize| {
        format!("INSERT INTO v (k, c, v) VALUES ('{key}', 1, '{}')", "x".repeat(bytes))
    };
    run(&engine, &insert("a", 15 * MIB)).await;
    for (key, condition) in [("a", ""), ("b", " IF NOT EXISTS"), ("c", ""), ("d", " IF NOT EXISTS")] {
        let statement = insert(key, limit - 64) + condition;
        let error = body(&engine, &statement).await.unwrap_err().to_string();
        let (head, tail) = error.split_once('/').unwrap_or_else(|| panic!("{error:.300}"));
        assert!(head.starts_with("Rejected an oversized mutation (167772"), "{error:.300}");
        assert_eq!(tail, format!("{limit}) for keyspace: ks. Top keys are: v.{key}"));
    }
    let piece = "y".repeat(3 * MIB);
    for _ in 0..7 {
        run(&engine, &format!("UPDATE v SET l = l + ['{piece}'] WHERE k = 'a' AND c = 2")).await;
    }
    let check = async |order: &str| {
        let found = rows(&engine, &format!("SELECT v, l FROM v WHERE k = 'a' ORDER BY c {order}")).await;
        let mut lengths: Vec<_> = found.iter().map(String::len).collect();
        lengths.sort_unstable();
        assert!(lengths.len() == 2 && lengths[0] > 15 * MIB && lengths[1] > 21 * MIB, "{lengths:?}");
    };
    check("ASC").await;
    engine.storage().flush(table).await.unwrap();
    check("ASC").await;
    check("DESC").await;
    run(&engine, "UPDATE v SET l = l + ['z'] WHERE k = 'a' AND c = 2").await;
    engine.storage().flush(table).await.unwrap();
    engine.storage().compact(table).await.unwrap();
    check("ASC").await;
    check("DESC").await;
}

#[test]
fn a_row_may_be_larger_than_any_write_and_a_write_larger_than_allowed_is_refused() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, values);
    }
}
