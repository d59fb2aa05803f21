//! Pages of every size show the same rows as one answer, end without an empty page, and forged paging states
//! are refused.

use crate::support::{Options, Rows, node, query, rows, run};
use query::{Engine, QueryError};

/// Pages one result may take before the test gives up.
const PAGES_MAX: usize = 10_000;

async fn fill(engine: &Engine) {
    run(engine, "CREATE TABLE t (k int, c int, v text, s int static, PRIMARY KEY (k, c))").await;
    for k in 0..12 {
        for c in 0..(k % 4) * 3 {
            run(engine, &format!("INSERT INTO t (k, c, v) VALUES ({k}, {c}, '{}')", k * c)).await;
        }
        if k % 3 == 0 {
            run(engine, &format!("INSERT INTO t (k, s) VALUES ({k}, {k})")).await;
        }
    }
}

/// All pages of a statement, and the number of rows on each.
async fn pages(engine: &Engine, statement: &str, page_size: i32) -> (Vec<String>, Vec<usize>) {
    let (mut all, mut sizes, mut state) = (Vec::new(), Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let options = Options { page_size: Some(page_size), paging_state: state, ..Options::default() };
        let page = Rows::parse(&query(engine, statement, &options).await.unwrap());
        sizes.push(page.rows.len());
        all.extend(page.rows);
        state = page.paging_state;
        if state.is_none() {
            return (all, sizes);
        }
    }
    panic!("{statement} does not end in pages of {page_size}");
}

async fn every_size(engine: Engine) {
    fill(&engine).await;
    for statement in [
        "SELECT * FROM t",
        "SELECT k, c FROM t LIMIT 7",
        "SELECT k, c FROM t PER PARTITION LIMIT 2",
        "SELECT k, c FROM t PER PARTITION LIMIT 2 LIMIT 9",
        "SELECT DISTINCT k, s FROM t",
        "SELECT * FROM t WHERE k = 7",
        "SELECT * FROM t WHERE k = 7 ORDER BY c DESC",
        "SELECT * FROM t WHERE k = 7 AND c IN (1, 2, 5, 7)",
        "SELECT * FROM t WHERE k = 7 AND c IN (1, 2, 5, 7) ORDER BY c DESC",
        "SELECT * FROM t WHERE k = 7 AND c > 2 LIMIT 4",
        "SELECT * FROM t WHERE k IN (3, 6, 7, 11, 100)",
        "SELECT * FROM t WHERE k IN (3, 6, 7, 11) PER PARTITION LIMIT 3",
        "SELECT * FROM t WHERE k IN (7, 11) AND c >= 2 AND c < 8",
        "SELECT * FROM t WHERE token(k) > -3000000000000000000",
        "SELECT * FROM t WHERE v = '0' ALLOW FILTERING",
        "SELECT * FROM t WHERE c > 3 ALLOW FILTERING",
        "SELECT * FROM t WHERE s = 9 ALLOW FILTERING",
        "SELECT k FROM t WHERE k = 1000",
        "SELECT count(*) FROM t",
        "SELECT k, count(*), max(c) FROM t GROUP BY k",
        "SELECT k, count(*) FROM t GROUP BY k LIMIT 5",
        "SELECT k, c, s, count(v) FROM t GROUP BY k, c",
        "SELECT k, c FROM t GROUP BY k, c LIMIT 11",
        "SELECT k, c, v FROM t GROUP BY k, c PER PARTITION LIMIT 2",
        "SELECT k, c FROM t GROUP BY k, c PER PARTITION LIMIT 2 LIMIT 5",
        "SELECT k, c, count(*) FROM t WHERE k = 7 GROUP BY c ORDER BY c DESC",
        "SELECT k, count(*), min(c) FROM t WHERE k IN (3, 6, 7, 11) AND c > 1 GROUP BY k",
        "SELECT k, c, count(*) FROM t WHERE v > '2' GROUP BY k, c ALLOW FILTERING",
        "SELECT DISTINCT k, s FROM t GROUP BY k",
        "SELECT * FROM t GROUP BY k",
        "SELECT k, writetime(v) FROM t",
        "SELECT k FROM t WHERE s = 9 AND c > 2 ALLOW FILTERING",
    ] {
        let whole = rows(&engine, statement).await;
        for page_size in [1, 2, 3, 5, 1000] {
            let (all, sizes) = pages(&engine, statement, page_size).await;
            assert_eq!(all, whole, "{statement} in pages of {page_size}");
            let full = sizes[..sizes.len() - 1].iter().all(|size| *size == page_size as usize);
            assert!(full, "{statement}: pages of {page_size} have {sizes:?} rows");
            let last = *sizes.last().unwrap();
            // Behind rows that fill their last page there is an empty one.
            let fits = whole.len() % page_size as usize == 0;
            assert!(last > 0 || sizes.len() == 1 || fits, "{statement}: an empty last page of {page_size}");
        }
    }
}

/// As counted in the tests of the Java and the Python driver: a full page is followed by another one, unless
/// LIMIT was reached.
async fn full_pages(engine: Engine) {
    run(&engine, "CREATE TABLE full_pages (k int, c int, PRIMARY KEY (k, c))").await;
    for c in 0..6 {
        run(&engine, &format!("INSERT INTO full_pages (k, c) VALUES (1, {c})")).await;
    }
    run(&engine, "CREATE TABLE one_row_each (k int PRIMARY KEY, v int)").await;
    for k in [1, 2] {
        run(&engine, &format!("INSERT INTO one_row_each (k, v) VALUES ({k}, {k})")).await;
    }
    for (statement, page_size, expected) in [
        ("SELECT * FROM full_pages", 3, vec![3, 3, 0]),
        ("SELECT * FROM full_pages WHERE k = 1", 6, vec![6, 0]),
        ("SELECT * FROM full_pages WHERE k = 1", 7, vec![6]),
        ("SELECT * FROM full_pages WHERE k = 1 LIMIT 6", 3, vec![3, 3]),
        ("SELECT * FROM full_pages WHERE k IN (1, 2)", 2, vec![2, 2, 2, 0]),
        ("SELECT DISTINCT k FROM full_pages", 1, vec![1, 0]),
        // Nothing can be behind the rows of partitions that were named.
        ("SELECT DISTINCT k FROM full_pages WHERE k = 1", 1, vec![1]),
        ("SELECT * FROM full_pages WHERE k = 1 AND c > 2 PER PARTITION LIMIT 1 LIMIT 7", 1, vec![1]),
        ("SELECT * FROM full_pages WHERE k = 1 PER PARTITION LIMIT 4", 2, vec![2, 2]),
        ("SELECT * FROM full_pages WHERE k = 1 AND c = 2", 1, vec![1]),
        ("SELECT k, writetime(v) FROM one_row_each WHERE k = 1", 1, vec![1]),
        ("SELECT * FROM full_pages WHERE k IN (1, 2) AND c = 2", 1, vec![1]),
        ("SELECT * FROM full_pages WHERE k = 1 AND c IN (2, 3)", 1, vec![1, 1, 0]),
        ("SELECT * FROM one_row_each WHERE k = 1", 1, vec![1]),
        ("SELECT * FROM one_row_each WHERE k IN (1, 2) LIMIT 7", 1, vec![1, 1]),
        ("SELECT * FROM one_row_each WHERE k IN (2, 1)", 2, vec![2]),
        ("SELECT * FROM one_row_each", 1, vec![1, 1, 0]),
    ] {
        assert_eq!(pages(&engine, statement, page_size).await.1, expected, "{statement} by {page_size}");
    }
}

#[test]
fn a_full_page_has_another_behind_it() {
    node(tempfile::tempdir().unwrap().path(), 2, full_pages);
}

#[test]
fn pages_of_every_size_show_the_same_rows() {
    for shards in [1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, every_size);
    }
}

async fn large_rows(engine: Engine) {
    run(&engine, "CREATE TABLE big (k int, c int, v text, PRIMARY KEY (k, c))").await;
    let value = "x".repeat(200_000);
    for c in 0..12 {
        run(&engine, &format!("INSERT INTO big (k, c, v) VALUES (0, {c}, '{value}')")).await;
    }
    let (all, sizes) = pages(&engine, "SELECT c, v FROM big WHERE k = 0", 5000).await;
    assert_eq!(all.len(), 12);
    assert_eq!(sizes, [6, 6], "a page ends once it has a megabyte");
    let whole = rows(&engine, "SELECT c FROM big WHERE k = 0").await;
    assert_eq!(whole.len(), 12);
}

#[test]
fn a_page_ends_after_a_megabyte() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, large_rows);
}

async fn between_shards(engine: Engine) {
    run(&engine, "CREATE TABLE wide (k int, c int, s text static, v text, PRIMARY KEY (k, c))").await;
    // One partition takes several of the pages in which shards answer each other (256 KiB), and so do many
    // small partitions.
    let value = "y".repeat(20_000);
    for k in 0..6 {
        for c in 0..40 {
            run(&engine, &format!("INSERT INTO wide (k, c, v) VALUES ({k}, {c}, '{value}')")).await;
        }
        run(&engine, &format!("INSERT INTO wide (k, s) VALUES ({k}, 's{k}')")).await;
    }
    for k in 100..400 {
        run(&engine, &format!("INSERT INTO wide (k, c, v) VALUES ({k}, 0, '{}')", &value[..2000])).await;
    }
    let keys = rows(&engine, "SELECT DISTINCT k, s FROM wide").await;
    assert_eq!(keys.len(), 306);
    let mut expected = Vec::new();
    for key in &keys {
        let (k, s) = key.split_once(" | ").unwrap();
        let large = s != "null";
        for c in 0..if large { 40 } else { 1 } {
            expected.push(format!("{k} | {c} | {s}"));
        }
    }
    assert_eq!(rows(&engine, "SELECT k, c, s FROM wide").await, expected);
    let filtered = rows(&engine, "SELECT k, c, s FROM wide WHERE c >= 38 ALLOW FILTERING").await;
    assert_eq!(filtered.len(), 12);
    let limited = rows(&engine, "SELECT k, c, s FROM wide PER PARTITION LIMIT 3 LIMIT 9").await;
    assert_eq!(limited.len(), 9);
    let backwards = rows(&engine, "SELECT c FROM wide WHERE k = 3 ORDER BY c DESC").await;
    assert_eq!(backwards, (0..40).rev().map(|c| c.to_string()).collect::<Vec<_>>());
    let (paged, _) = pages(&engine, "SELECT k, c, s FROM wide", 7).await;
    assert_eq!(paged, expected);
    assert_eq!(rows(&engine, "SELECT count(*) FROM wide").await, ["540"]);
}

#[test]
fn shards_answer_each_other_in_pages_that_join() {
    for shards in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), shards, between_shards);
    }
}

async fn forged(engine: Engine) {
    fill(&engine).await;
    let first = Options { page_size: Some(2), ..Options::default() };
    let page = Rows::parse(&query(&engine, "SELECT * FROM t WHERE k IN (7, 11)", &first).await.unwrap());
    let state = page.paging_state.unwrap();
    let mut tried = 0;
    for at in 0..state.len() {
        for flip in [1, 0x80, 0xff] {
            let mut forged = state.clone();
            forged[at] ^= flip;
            let options = Options { page_size: Some(2), paging_state: Some(forged), ..Options::default() };
            match query(&engine, "SELECT * FROM t WHERE k IN (7, 11)", &options).await {
                Ok(_) => {}
                Err(QueryError::Protocol(text)) => {
                    assert_eq!(text, "Invalid value for the paging state");
                    tried += 1;
                }
                Err(other) => panic!("byte {at} flipped by {flip}: {other}"),
            }
        }
    }
    assert!(tried > 10, "most forgeries are seen");
    let other_table = Options { page_size: Some(2), paging_state: Some(state), ..Options::default() };
    run(&engine, "CREATE TABLE two (a int, b int, PRIMARY KEY ((a, b)))").await;
    let refused = query(&engine, "SELECT * FROM two", &other_table).await;
    assert!(matches!(refused, Err(QueryError::Protocol(_))), "{refused:?}");
}

#[test]
fn forged_states_are_refused_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 2, forged);
}
