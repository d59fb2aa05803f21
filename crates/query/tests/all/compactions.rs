//! Compactions as clients see them: the strategies they may ask for, and the history.

use crate::support::{body, node, rows, run};
use query::Engine;

async fn history(engine: Engine) -> Vec<String> {
    run(&engine, "CREATE TABLE h (k int PRIMARY KEY, v int) WITH compaction = {'class': 'IncrementalCompactionStrategy', \
         'space_amplification_goal': '1.5', 'enabled': 'false'}").await;
    let table = engine.storage().schema().table("ks", "h").unwrap().id();
    for value in 0..3 {
        run(&engine, &format!("INSERT INTO h (k, v) VALUES (1, {value})")).await;
        engine.storage().flush(table).await.unwrap();
    }
    assert_eq!(rows(&engine, "SELECT id FROM system.compaction_history").await.len(), 0);
    engine.storage().compact(table).await.unwrap();
    let wrong = body(
        &engine,
        "ALTER TABLE h WITH compaction = {'class': 'IncrementalCompactionStrategy', 'space_amplification_goal': '3'}",
    );
    let wrong = wrong.await.expect_err("a goal beyond 2").to_string();
    assert!(wrong.contains("space_amplification_goal must be between 1.0 and 2.0"), "{wrong}");
    rows(
        &engine,
        "SELECT keyspace_name, columnfamily_name, rows_merged, compaction_properties FROM system.compaction_history",
    )
    .await
}

#[test]
fn a_compaction_is_in_the_history_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    for (shards, expected) in [(1, 1), (2, 0)] {
        let found = if expected == 1 {
            node(folder.path(), shards, history)
        } else {
            node(folder.path(), shards, |engine| async move {
                rows(&engine, "SELECT * FROM system.compaction_history").await
            })
        };
        assert_eq!(found.len(), expected, "{found:?}");
        for row in found {
            assert!(row.contains("ks") && row.contains('h') && row.contains("Major compaction"), "{row}");
            assert!(row.contains("3: 1"), "three files made one partition: {row}");
        }
    }
}
