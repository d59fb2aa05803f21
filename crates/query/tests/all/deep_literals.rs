//! Literals that are long or deep: preparing them is work for their text alone.

use crate::support::{body, node, rows, run};

/// The type of tuples inside sets was asked for twice at each level: 2^60 times at the innermost.
#[test]
fn literals_inside_each_other_are_work_for_their_text_alone() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        run(&engine, "CREATE TABLE ks.t (k int PRIMARY KEY, x text)").await;
        let mut nested = "((int) 1, (int) 2)".to_owned();
        for _ in 0..60 {
            nested = format!("({{{nested}}}, (int) 3)");
        }
        let _ = body(&engine, &format!("INSERT INTO t (k, x) VALUES (1, to_json({nested}))")).await;
        // One element of another kind, after all the others.
        let unlike = format!("{{{}'x'}}", "1, ".repeat(100_000));
        let _ = body(&engine, &format!("INSERT INTO t (k, x) VALUES (2, to_json({unlike}))")).await;
        // The overload of each operator used to be chosen again for every operator of the chain.
        run(&engine, &format!("INSERT INTO t (k, x) VALUES ({}, 'chain')", vec!["1"; 900].join(" + "))).await;
        assert_eq!(rows(&engine, "SELECT x FROM t WHERE x = 'chain' ALLOW FILTERING").await, ["'chain'"]);
        // Parts of a literal that fits fit: they are not asked again at each level.
        let deep = format!("{}frozen<list<int>>{}", "frozen<list<".repeat(60), ">>".repeat(60));
        run(&engine, &format!("CREATE TABLE ks.deep (k int PRIMARY KEY, l {deep})")).await;
        let literal = |inner: &str| format!("{}{inner}{}", "[".repeat(60), "]".repeat(60));
        let wide = format!("[{}]", vec!["7"; 2_000].join(", "));
        run(&engine, &format!("INSERT INTO deep (k, l) VALUES (1, {})", literal(&wide))).await;
        let wrong = format!("INSERT INTO deep (k, l) VALUES (1, {})", literal("['x']"));
        let wrong = body(&engine, &wrong).await.unwrap_err().to_string();
        assert!(wrong.contains("Invalid list literal for l: value [[["), "{wrong}");
        run(&engine, "INSERT INTO t (k, x) VALUES (3, to_json({((int) 1, {(int) 2})}))").await;
        assert_eq!(rows(&engine, "SELECT x FROM t WHERE k = 3").await, ["'[[1, [2]]]'"]);
    });
}
