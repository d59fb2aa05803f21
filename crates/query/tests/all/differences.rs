//! Answers that once differed from Apache Cassandra 5.0.6: each case is a statement and Cassandra's answer.
//!
//! Found by `tests/differential`, which compares whole runs with a live Cassandra; here each is a test of its
//! own.
#![allow(clippy::disallowed_types, reason = "a test hands results out of shards")]

use std::sync::mpsc;

use query::{ClientState, Engine, EngineConfig, Response};
use reactor::{Config, DriverChoice};
use storage::StorageConfig;
use wire::consistency::Consistency;
use wire::request::QueryParameters;
use wire::version::ProtocolVersion;

const VERSION: ProtocolVersion = ProtocolVersion::V4;
const NO_PAGES: &str = "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must \
                        either remove the ORDER BY or the IN and sort client side, or disable paging for this query";

/// Reads a rows result: a fixed walk over bytes the engine wrote itself.
struct Body<'b>(&'b [u8]);

impl<'b> Body<'b> {
    fn take(&mut self, count: usize) -> &'b [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn short(&mut self) -> usize {
        usize::from(u16::from_be_bytes(self.take(2).try_into().unwrap()))
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn string(&mut self) -> String {
        let length = self.short();
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = self.int();
        usize::try_from(length).ok().map(|length| self.take(length))
    }
}

/// `names: values, values`, each value as text or, of other types, in hexadecimal; `-` for null.
fn rows(body: &[u8]) -> String {
    let mut body = Body(body);
    if body.int() != 2 {
        return "done".to_owned();
    }
    let flags = body.int();
    let columns = body.int() as usize;
    if flags & 2 != 0 {
        body.bytes();
    }
    body.string();
    body.string();
    let (mut names, mut types) = (Vec::new(), Vec::new());
    for _ in 0..columns {
        names.push(body.string());
        types.push(body.short());
    }
    let count = body.int();
    let mut shown = Vec::new();
    for _ in 0..count {
        let values: Vec<String> = types
            .iter()
            .map(|ty| match body.bytes() {
                None => "-".to_owned(),
                Some(value) if matches!(ty, 0x01 | 0x0d) => String::from_utf8(value.to_vec()).unwrap(),
                Some(value) => value.iter().map(|byte| format!("{byte:02x}")).collect(),
            })
            .collect();
        shown.push(values.join(" "));
    }
    format!("{}: {}", names.join(" "), shown.join(", "))
}

async fn answer(engine: &Engine, text: &str, page_size: Option<u32>) -> String {
    let client =
        ClientState { keyspace: Some("ks".into()), version: VERSION, ..ClientState::new(None, "anonymous") };
    let parameters = QueryParameters { page_size, ..QueryParameters::at(Consistency::One, VERSION) };
    let mut out = Response::default();
    match engine.query(&client, text, &parameters, &mut out).await {
        Ok(()) => rows(&out.body),
        Err(error) => error.to_string(),
    }
}

/// Statements, rows of a page (0: no pages), and Cassandra's answer; on a node of one shard.
fn check(cases: &'static [(&'static str, u32, &'static str)]) {
    let workdir = tempfile::tempdir().unwrap();
    let path = workdir.path().to_owned();
    let (sender, receiver) = mpsc::channel();
    let config = Config { shards: 1, driver: DriverChoice::Poll, ..Config::default() };
    let running = reactor::start(config, move |_| {
        let (sender, path) = (sender.clone(), path.clone());
        async move {
            let config = EngineConfig::new([7; 16], 1);
            let engine = query::node::open(StorageConfig::new(path, 8 << 20), config).await.unwrap();
            let create =
                "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
            answer(&engine, create, None).await;
            let mut answers = Vec::new();
            for (text, page, _) in cases {
                answers.push(answer(&engine, text, Some(*page).filter(|page| *page > 0)).await);
            }
            sender.send(answers).unwrap();
        }
    })
    .unwrap();
    running.join().unwrap();
    for ((text, _, expected), answer) in cases.iter().zip(receiver.recv().unwrap()) {
        assert_eq!(answer, *expected, "{text}");
    }
}

#[test]
fn a_new_table_is_named_as_the_statement_names_it() {
    check(&[
        ("CREATE TABLE x (k int)", 0, "No PRIMARY KEY specifed for table 'x' (exactly one required)"),
        ("CREATE TABLE ks.x (k int)", 0, "No PRIMARY KEY specifed for table 'ks.x' (exactly one required)"),
        ("CREATE TABLE x (k int, k int)", 0, "Duplicate column 'k' declaration for table 'x'"),
        (
            "CREATE TABLE x (k int PRIMARY KEY, c int, PRIMARY KEY (k))",
            0,
            "Multiple PRIMARY KEY specified for table 'x' (exactly one required)",
        ),
    ]);
}

#[test]
fn casts_show_what_cassandra_shows() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, d decimal)", 0, "done"),
        ("INSERT INTO t (k, d) VALUES (1, 1e10)", 0, "done"),
        ("SELECT cast(k AS int), cast(k AS text) FROM t", 0, "k cast(k as text): 00000001 1"),
        ("SELECT cast(d AS text) FROM t", 0, "cast(d as text): 1E+10"),
    ]);
}

#[test]
fn the_first_of_several_wrong_values_is_told() {
    check(&[
        ("CREATE TABLE t (k text, c int, v int, PRIMARY KEY (k, c))", 0, "done"),
        ("UPDATE t USING TTL -1 SET v = 1 WHERE k = '' AND c = 1", 0, "Key may not be empty"),
        ("UPDATE t USING TTL -1 SET v = 1 WHERE k IN ('a', '') AND c = 1", 0, "Key may not be empty"),
        (
            "UPDATE t USING TTL -1 SET v = 1 WHERE k = 'a' AND c = 1",
            0,
            "A TTL must be greater or equal to 0, but was -1",
        ),
        ("SELECT v FROM t WHERE k = ''", 0, "Key may not be empty"),
        ("SELECT v FROM t WHERE k IN ('a', '') LIMIT 1", 0, "Key may not be empty"),
        ("SELECT v FROM t WHERE k = '' AND c > 2 AND c < 1", 0, "v: "),
        ("SELECT v FROM t WHERE k IN ('a', '') AND c > 2 AND c < 1", 0, "v: "),
    ]);
}

#[test]
fn what_is_ordered_over_several_partitions_has_no_pages() {
    check(&[
        ("CREATE TABLE t (k text, c int, PRIMARY KEY (k, c))", 0, "done"),
        ("INSERT INTO t (k, c) VALUES ('a', 1)", 0, "done"),
        ("INSERT INTO t (k, c) VALUES ('b', 0)", 0, "done"),
        ("SELECT c FROM t WHERE k IN ('a', 'b') ORDER BY c", 0, "c: 00000000, 00000001"),
        ("SELECT c FROM t WHERE k IN ('a', 'b') ORDER BY c", 5, NO_PAGES),
        ("SELECT count(*) FROM t WHERE k IN ('a', 'b') ORDER BY c", 5, NO_PAGES),
        ("SELECT c FROM t WHERE k IN ('a', '') ORDER BY c", 5, "Key may not be empty"),
        ("SELECT c FROM t WHERE k IN ('a', 'b') AND c > 2 AND c < 1 ORDER BY c", 5, "c: "),
        ("SELECT count(*) FROM t WHERE k IN ('a', 'b') AND c > 2 AND c < 1 ORDER BY c", 5, NO_PAGES),
    ]);
}

#[test]
fn a_clustering_value_keeps_the_bytes_it_was_first_written_with() {
    check(&[
        ("CREATE TABLE t (k int, c decimal, v int, PRIMARY KEY (k, c))", 0, "done"),
        ("INSERT INTO t (k, c, v) VALUES (1, 1.5, 1)", 0, "done"),
        ("INSERT INTO t (k, c, v) VALUES (1, 1.50, 2)", 0, "done"),
        ("SELECT c, v FROM t", 0, "c v: 000000010f 00000002"),
    ]);
}
