//! Limits on the lengths of keys, compared with the answers of Cassandra 5.0.6 for the same lengths.

use crate::support::{Bound, Options, Rows, body, node_with, query};
use query::Engine;

/// Binds values of these lengths to a statement; returns the error message if it is refused.
async fn refused(engine: &Engine, statement: &'static str, lengths: &[usize]) -> Option<String> {
    let values = lengths.iter().map(|length| (None, Bound::Bytes(vec![b'a'; *length])));
    let options = Options { values: values.collect(), ..Options::default() };
    query(engine, statement, &options).await.err().map(|error| error.to_string())
}

async fn long_keys(engine: Engine) {
    for table in [
        "CREATE TABLE one (k text, c text, v int, PRIMARY KEY (k, c))",
        "CREATE TABLE two (a blob, b blob, c blob, d blob, PRIMARY KEY ((a, b), c, d))",
    ] {
        body(&engine, table).await.unwrap();
    }
    // The refusal of each statement, by the lengths bound: the number is the key's length in Cassandra's
    // message.
    let partition = "INSERT INTO two (a, b, c, d) VALUES (?, ?, 0x, 0x)";
    let clustering = "INSERT INTO two (a, b, c, d) VALUES (0x01, 0x, ?, ?)";
    let cases: &[(&str, &[usize], Option<usize>)] = &[
        ("INSERT INTO one (k, c) VALUES (?, 'c')", &[65_535], None),
        ("INSERT INTO one (k, c) VALUES (?, 'c')", &[65_536], Some(65_536)),
        ("INSERT INTO one (k, c) VALUES ('k', ?)", &[65_535], None),
        ("INSERT INTO one (k, c) VALUES ('k', ?)", &[65_536], Some(65_536)),
        ("UPDATE one SET v = 1 WHERE k = ? AND c = 'c'", &[70_000], Some(70_000)),
        ("UPDATE one SET v = 1 WHERE k = 'k' AND c = ?", &[70_000], Some(70_000)),
        ("DELETE FROM one WHERE k = 'k' AND c = ?", &[65_536], Some(65_536)),
        ("SELECT v FROM one WHERE k = ?", &[65_535], None),
        ("SELECT v FROM one WHERE k = ?", &[65_536], Some(65_536)),
        ("SELECT v FROM one WHERE k IN ('k', ?)", &[65_536], Some(65_536)),
        (partition, &[65_520, 9], None),
        (partition, &[65_529, 0], None),
        (partition, &[65_530, 0], Some(65_536)),
        (partition, &[65_535, 1], Some(65_536)),
        (partition, &[40_000, 40_000], Some(80_000)),
        (partition, &[32_767, 32_762], None),
        (partition, &[32_765, 32_765], Some(65_536)),
        ("SELECT c FROM two WHERE a = ? AND b IN (0x, ?)", &[40_000, 40_000], Some(80_000)),
        ("UPDATE one SET v = 1 WHERE k = 'k' AND c = ? IF v = 1", &[65_536], Some(65_536)),
        ("DELETE FROM one WHERE k = 'k' AND c < ?", &[65_536], Some(65_536)),
        (clustering, &[65_534, 1], None),
        (clustering, &[65_535, 1], Some(65_536)),
        (clustering, &[40_000, 40_000], Some(80_000)),
        ("DELETE FROM two WHERE a = 0x01 AND b = 0x AND c = ? AND d = ?", &[65_535, 1], Some(65_536)),
    ];
    for (statement, lengths, length) in cases {
        let expected = length.map(|length| format!("Key length of {length} is longer than maximum of 65535"));
        assert_eq!(refused(&engine, statement, lengths).await, expected, "{statement} {lengths:?}");
    }
    // No row has longer values of clustering columns, but they can be asked for, and ordered.
    let options = Options { values: vec![(None, Bound::Bytes(vec![b'a'; 65_536]))], ..Options::default() };
    for (statement, found) in [
        ("SELECT v FROM one WHERE k = 'k' AND c = ?", 0),
        ("SELECT v FROM one WHERE k = 'k' AND (c) = (?)", 0),
        ("SELECT v FROM one WHERE k = 'k' AND c IN (?)", 0),
        ("SELECT v FROM one WHERE k = 'k' AND (c) IN ((?))", 0),
        ("SELECT v FROM one WHERE k = 'k' AND c > ?", 0),
        ("SELECT v FROM one WHERE k = 'k' AND c < ?", 1),
        ("SELECT v FROM one WHERE k = 'k' AND (c) <= (?) ORDER BY c DESC", 1),
        ("SELECT v FROM one WHERE c = ? ALLOW FILTERING", 0),
    ] {
        let answer = query(&engine, statement, &options).await.unwrap();
        assert_eq!(Rows::parse(&answer).rows.len(), found, "{statement}");
    }
    // Accepted keys are stored.
    let options = Options { values: vec![(None, Bound::Bytes(vec![b'a'; 65_535]))], ..Options::default() };
    for statement in ["SELECT c FROM one WHERE k = ?", "SELECT v FROM one WHERE k = 'k' AND c = ?"] {
        let answer = query(&engine, statement, &options).await.unwrap();
        assert_eq!(Rows::parse(&answer).rows.len(), 1, "{statement}");
    }
}

#[test]
fn keys_hold_64_kib_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 2, |_| {}, long_keys);
}
