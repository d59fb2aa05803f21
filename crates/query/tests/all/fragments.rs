//! SELECT FROM MUTATION_FRAGMENTS: the contents of memtables and table files, each shown separately, in pages
//! too.

use crate::support::{Options, Rows, node, query, rows, run};
use query::Engine;
use reactor::{Group, mesh};

async fn error(engine: &Engine, statement: &str) -> String {
    query(engine, statement, &Options::default()).await.unwrap_err().to_string()
}

async fn pages(engine: &Engine, statement: &str, page_size: i32) -> Vec<String> {
    let (mut all, mut state) = (Vec::new(), None);
    for _ in 0..1000 {
        let options = Options { page_size: Some(page_size), paging_state: state, ..Options::default() };
        let page = Rows::parse(&query(engine, statement, &options).await.unwrap());
        all.extend(page.rows);
        state = page.paging_state;
        if state.is_none() {
            return all;
        }
    }
    panic!("{statement} does not end");
}

/// The table and the statements of the documentation's example.
async fn example(engine: &Engine) {
    run(engine, "CREATE TABLE tbl (pk int, ck int, v int, PRIMARY KEY (pk, ck))").await;
    for statement in [
        "DELETE FROM tbl USING TIMESTAMP 100 WHERE pk = 0",
        "DELETE FROM tbl USING TIMESTAMP 101 WHERE pk = 0 AND ck > 0 AND ck < 2",
        "INSERT INTO tbl (pk, ck, v) VALUES (0, 0, 0) USING TIMESTAMP 102",
        "INSERT INTO tbl (pk, ck, v) VALUES (0, 1, 0) USING TIMESTAMP 103",
        "INSERT INTO tbl (pk, ck, v) VALUES (0, 2, 0) USING TIMESTAMP 104",
        "INSERT INTO tbl (pk, ck, v) VALUES (1, 0, 0) USING TIMESTAMP 105",
    ] {
        run(engine, statement).await;
    }
}

async fn documented(engine: Engine) {
    example(&engine).await;
    let columns = "pk, mutation_source, partition_region, ck, position_weight, mutation_fragment_kind";
    let expected = [
        "1 | 'memtable:0' | 0 | null | null | 'partition start'",
        "1 | 'memtable:0' | 2 | 0 | 0 | 'clustering row'",
        "1 | 'memtable:0' | 3 | null | null | 'partition end'",
        "0 | 'memtable:0' | 0 | null | null | 'partition start'",
        "0 | 'memtable:0' | 2 | 0 | 0 | 'clustering row'",
        "0 | 'memtable:0' | 2 | 0 | 1 | 'range tombstone change'",
        "0 | 'memtable:0' | 2 | 1 | 0 | 'clustering row'",
        "0 | 'memtable:0' | 2 | 2 | -1 | 'range tombstone change'",
        "0 | 'memtable:0' | 2 | 2 | 0 | 'clustering row'",
        "0 | 'memtable:0' | 3 | null | null | 'partition end'",
    ];
    let all = format!("SELECT {columns} FROM MUTATION_FRAGMENTS(tbl)");
    assert_eq!(rows(&engine, &all).await, expected);
    for page_size in [1, 2, 3, 100] {
        assert_eq!(pages(&engine, &all, page_size).await, expected, "pages of {page_size}");
    }
    assert_eq!(rows(&engine, &format!("{all} WHERE pk = 1")).await, expected[..3]);
    assert_eq!(
        rows(
            &engine,
            &format!(
                "{all} WHERE pk = 0 AND mutation_source = 'memtable:0' AND partition_region = 2 AND ck = 1"
            )
        )
        .await,
        expected[6..7]
    );
    assert_eq!(
        rows(&engine, &format!("{all} WHERE pk = 1 AND mutation_source = 'row-cache'")).await,
        [""; 0]
    );
    assert_eq!(
        rows(&engine, &format!("{all} WHERE pk = 0 AND partition_region = 2 ALLOW FILTERING")).await,
        expected[4..9]
    );
    assert_eq!(
        rows(&engine, "SELECT COUNT(*) FROM MUTATION_FRAGMENTS(ks.tbl) WHERE pk = 0 AND mutation_fragment_kind = 'range tombstone change' ALLOW FILTERING").await,
        ["2"]
    );
    assert_eq!(
        rows(&engine, "SELECT metadata, value FROM MUTATION_FRAGMENTS(tbl) WHERE pk = 1").await,
        [
            r#"'{"tombstone":{}}' | null"#,
            r#"'{"columns":{"v":{"is_live":true,"timestamp":105,"type":"regular"}},"marker":{"timestamp":105}}' | '{"v":"0"}'"#,
            "null | null",
        ]
    );
    let start = rows(&engine, "SELECT metadata FROM MUTATION_FRAGMENTS(tbl) WHERE pk = 0 LIMIT 1").await;
    assert!(start[0].starts_with(r#"'{"tombstone":{"deletion_time":"2"#), "{start:?}");
    assert!(start[0].ends_with(r#"z","timestamp":100}}'"#), "{start:?}");
    for (statement, message) in [
        (
            "SELECT v FROM MUTATION_FRAGMENTS(tbl)",
            "Undefined column name v in table ks.\"tbl_$mutation_fragments\"",
        ),
        (
            "SELECT * FROM MUTATION_FRAGMENTS(tbl) WHERE pk = 0 ORDER BY mutation_source DESC",
            "Mutation fragments are read in their own order only",
        ),
        ("SELECT * FROM MUTATION_FRAGMENTS(nothing)", "table nothing does not exist"),
        (
            "SELECT * FROM MUTATION_FRAGMENTS(system.local)",
            "system.local is made of the node's own state and has no mutation fragments",
        ),
    ] {
        assert_eq!(error(&engine, statement).await, message, "{statement}");
    }
    // Once they are flushed they come from a table file.
    for shard in 0..reactor::shard_count() {
        let flushed = mesh::call(shard, Group::ADMIN, || async {
            Engine::here().unwrap().storage().flush_all().await.is_ok()
        });
        assert!(flushed.await.unwrap());
    }
    run(&engine, "UPDATE tbl SET v = null WHERE pk = 1 AND ck = 0").await;
    let found = rows(&engine, &format!("{all} WHERE pk = 1")).await;
    assert_eq!(found.len(), 6, "{found:?}");
    assert_eq!(found[..3], expected[..3]);
    assert!(found[3].starts_with("1 | 'sstable:/") && found[3].contains("-big-Data.db' | 0 | "), "{found:?}");
    let source = found[3].split(" | ").nth(1).unwrap().to_owned();
    let of_file = format!("{all} WHERE pk = 1 AND mutation_source = {source}");
    assert_eq!(rows(&engine, &of_file).await, found[3..]);
    let dead =
        rows(&engine, "SELECT metadata, value FROM MUTATION_FRAGMENTS(tbl) WHERE pk = 1 LIMIT 2").await;
    assert!(dead[1].contains(r#""is_live":false"#) && dead[1].ends_with(" | '{}'"), "{dead:?}");
}

#[test]
fn the_documented_example_is_answered() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, documented);
    }
}

async fn all_kinds(engine: Engine) {
    run(&engine, "CREATE TABLE w (k int, a int, b text, s text static, l list<int>, m map<text, int>, f frozen<list<int>>, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY (a DESC, b ASC)").await;
    run(&engine, "INSERT INTO w (k, s) VALUES (1, 'here') USING TIMESTAMP 7").await;
    run(
        &engine,
        "INSERT INTO w (k, a, b, m, f) VALUES (1, 2, 'x', {'one': 1}, [1, 2]) USING TIMESTAMP 8 AND TTL 1000",
    )
    .await;
    run(&engine, "UPDATE w USING TIMESTAMP 9 SET m['two'] = 2 WHERE k = 1 AND a = 2 AND b = 'x'").await;
    // Ranges over a part of the clustering.
    run(&engine, "DELETE FROM w USING TIMESTAMP 5 WHERE k = 1 AND a = 2").await;
    run(&engine, "DELETE FROM w USING TIMESTAMP 5 WHERE k = 1 AND a = 4 AND b > 'q'").await;
    for c in 0..20 {
        run(&engine, &format!("INSERT INTO w (k, a, b) VALUES ({c}, 2, 'y{c}')")).await;
    }
    let columns = "partition_region, a, b, position_weight, mutation_fragment_kind";
    let found = rows(&engine, &format!("SELECT {columns} FROM MUTATION_FRAGMENTS(w) WHERE k = 1")).await;
    assert_eq!(
        found,
        [
            "0 | null | null | null | 'partition start'",
            "1 | null | null | null | 'static row'",
            "2 | 4 | null | 1 | 'range tombstone change'",
            "2 | 4 | 'q' | 1 | 'range tombstone change'",
            "2 | 2 | null | -1 | 'range tombstone change'",
            "2 | 2 | null | 1 | 'range tombstone change'",
            "2 | 2 | 'x' | 0 | 'clustering row'",
            "2 | 2 | 'y1' | 0 | 'clustering row'",
            "3 | null | null | null | 'partition end'",
        ]
    );
    let row = rows(&engine, "SELECT metadata, value FROM MUTATION_FRAGMENTS(w) WHERE k = 1 AND mutation_source = 'memtable:0' AND partition_region = 2 AND a = 2 AND b = 'x'").await;
    for part in
        [r#""ttl":"1000s""#, r#""type":"collection""#, r#""key":"two""#, r#""type":"frozen-collection""#]
    {
        assert!(row[0].contains(part), "{part} in {row:?}");
    }
    assert!(row[0].contains(r#"{"key":"two","value":"2"}"#), "{row:?}");
    let all = format!("SELECT k, {columns}, value FROM MUTATION_FRAGMENTS(w)");
    let whole = rows(&engine, &all).await;
    assert_eq!(whole.len(), 9 + 19 * 3);
    for page_size in [1, 4, 7] {
        assert_eq!(pages(&engine, &all, page_size).await, whole, "pages of {page_size}");
    }
}

#[test]
fn fragments_of_every_kind_are_shown_in_pages() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, all_kinds);
    }
}
