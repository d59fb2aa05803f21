//! Traces of reads, by which drivers' tests check that a null made a tombstone and an unset value none.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{client, node, prepare, rows, run};
use query::tracing::{SlowRequest, Trace};
use query::{Engine, Response};
use reactor::{Group, mesh};
use storage::{ReadNotes, ToldFact, ToldRead, noting};
use wire::consistency::Consistency;
use wire::request::{QueryParameters, Request};
use wire::values::Values;
use wire::version::ProtocolVersion;

async fn tombstones_met(engine: &Engine, statement: &str) -> u64 {
    let mut out = Response { trace: Some(Trace::begin(engine, "Execute CQL3 query")), ..Response::default() };
    let client = client();
    let parameters = QueryParameters::at(Consistency::One, client.version);
    engine.query(&client, statement, &parameters, &mut out).await.unwrap();
    out.tombstones
}

async fn count(engine: Engine) {
    run(&engine, "CREATE TABLE ks.t (k text PRIMARY KEY, i int, j int)").await;
    run(&engine, "INSERT INTO ks.t (k, i) VALUES ('whole', 1)").await;
    run(&engine, "INSERT INTO ks.t (k, i, j) VALUES ('null', null, null)").await;
    for (statement, expected) in [
        ("SELECT i FROM ks.t WHERE k = 'whole'", 0),
        ("SELECT i, j FROM ks.t WHERE k = 'null'", 2),
        ("SELECT i FROM ks.t WHERE k IN ('whole', 'null')", 2),
        ("SELECT * FROM ks.t", 2),
        ("SELECT * FROM system.local", 0),
    ] {
        assert_eq!(tombstones_met(&engine, statement).await, expected, "{statement}");
    }
}

#[test]
fn a_trace_counts_the_tombstones_its_reads_met() {
    node(tempfile::tempdir().unwrap().path(), 1, count);
}

async fn parameters(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c text, v int, PRIMARY KEY (k, c))").await;
    let insert = prepare(&engine, "INSERT INTO t (k, c, v) VALUES (?, :c, ?)").await.unwrap();
    let mut trace = Trace::begin(&engine, "Execute CQL3 prepared query");
    // Two values with their lengths and one that is unset.
    let bytes =
        [&[0, 3, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 4][..], b"it's", &[0xff, 0xff, 0xff, 0xfe]].concat();
    trace.prepared(&engine, &insert.id, &Values::decode(&bytes, ProtocolVersion::V5).unwrap());
    // Values that do not fit are not noted, and neither is an unknown id.
    trace.prepared(&engine, &[0; 16], &Values::empty(ProtocolVersion::V5));
    let id = uuid::Uuid::from_bytes(trace.id().unwrap());
    trace.finish(&engine, &client()).await.unwrap();
    let query = format!("SELECT parameters FROM system_traces.sessions WHERE session_id = {id}");
    assert_eq!(
        rows(&engine, &query).await,
        ["{'bound_var_0_k': '7', 'bound_var_1_c': ''it''s'', 'bound_var_2_v': '<unset>', \
          'query': 'INSERT INTO t (k, c, v) VALUES (?, :c, ?)'}"]
    );
}

#[test]
fn a_trace_tells_what_an_id_stands_for_and_what_was_bound() {
    node(tempfile::tempdir().unwrap().path(), 1, parameters);
}

/// Disk reads of a statement, as a trace has them.
async fn reads_of(engine: &Engine, statement: &str) -> Vec<ToldRead> {
    let notes = Rc::<ReadNotes>::default();
    noting(&notes, run(engine, statement)).await;
    notes.take()
}

/// Has all rows of a table on the disk alone.
async fn flush_and_evict(engine: &Engine, table: &str) {
    let table = engine.storage().schema().table("ks", table).unwrap().id();
    for shard in 0..2 {
        let emptied = mesh::call(shard, Group::ADMIN, move || async move {
            let storage = Engine::here().unwrap().storage().clone();
            storage.flush(table).await.unwrap();
            storage.evict_cache();
        });
        emptied.await.unwrap();
    }
}

async fn disk_reads(engine: Engine) {
    const ROWS: i32 = 40;
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v text)").await;
    for key in 0..ROWS {
        run(&engine, &format!("INSERT INTO t (k, v) VALUES ({key}, 'some text')")).await;
    }
    flush_and_evict(&engine, "t").await;
    let mut shards = BTreeSet::new();
    let mut most = 0;
    let mut told = Vec::new();
    for key in 0..ROWS {
        let statement = format!("SELECT v FROM t WHERE k = {key}");
        told = reads_of(&engine, &statement).await;
        // The index of the first on each shard, which has all of it on one page.
        assert!(matches!(told.len(), 1 | 2), "{told:?}");
        assert!(told.iter().map(|read| read.bytes).sum::<u64>() <= 8192, "{told:?}");
        assert!(told.last().unwrap().file.ends_with("-big-Data.db"), "{told:?}");
        if told.len() == 2 {
            assert!(told[0].file.ends_with("-big-Index.db") && told[0].at <= told[1].at, "{told:?}");
        }
        assert_eq!(told[0].shard, told[told.len() - 1].shard);
        most = most.max(told.len());
        shards.insert(told[0].shard);
        assert_eq!(reads_of(&engine, &statement).await, [], "it is in the cache now");
    }
    assert_eq!((most, shards.len()), (2, 2), "cold reads of both shards");
    assert_eq!(reads_of(&engine, "INSERT INTO t (k, v) VALUES (0, 'new')").await, []);

    let mut trace = Trace::begin(&engine, "Execute CQL3 query");
    let ToldRead { file, offset, size, bytes, shard, .. } = told[0].clone();
    trace.reads(told);
    let id = uuid::Uuid::from_bytes(trace.id().unwrap());
    trace.finish(&engine, &client()).await.unwrap();
    let query = format!("SELECT activity, thread FROM system_traces.events WHERE session_id = {id}");
    let text = format!(
        "'{file}: finished bulk DMA read of size {size} at offset {offset}, successfully read {bytes} bytes'"
    );
    assert_eq!(rows(&engine, &query).await, [format!("{text} | 'shard {shard}'")]);
}

#[test]
fn a_trace_tells_each_read_of_the_disk_on_whichever_shard() {
    node(tempfile::tempdir().unwrap().path(), 2, disk_reads);
}

/// Shards that read the disk for these statements.
async fn shards_that_read(engine: &Engine, statements: &[String]) -> BTreeSet<usize> {
    let mut shards = BTreeSet::new();
    for statement in statements {
        shards.extend(reads_of(engine, statement).await.into_iter().map(|read| read.shard));
    }
    shards
}

async fn reads_of_writes(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    run(&engine, "CREATE TABLE c (k int PRIMARY KEY, v counter)").await;
    let each =
        |text: &str| -> Vec<String> { (0..20).map(|key| text.replace('?', &key.to_string())).collect() };
    let count = each("UPDATE c SET v = v + 1 WHERE k = ?");
    for statement in each("INSERT INTO t (k, v) VALUES (?, 1)").iter().chain(&count) {
        run(&engine, statement).await;
    }
    let both = BTreeSet::from([0, 1]);
    for (table, statements) in [
        ("t", each("UPDATE t SET v = 2 WHERE k = ? IF v = 1")),
        ("t", vec!["SELECT count(*) FROM t".to_owned()]),
        ("t", vec!["SELECT * FROM t".to_owned()]),
        ("c", count),
    ] {
        flush_and_evict(&engine, table).await;
        assert_eq!(shards_that_read(&engine, &statements).await, both, "{statements:?}");
    }
}

#[test]
fn a_trace_tells_what_conditions_counters_and_totals_of_a_table_read() {
    node(tempfile::tempdir().unwrap().path(), 2, reads_of_writes);
}

/// Facts of a statement's work, as a trace has them.
async fn facts_of(engine: &Engine, statement: &str) -> Vec<String> {
    let notes = Rc::<ReadNotes>::default();
    noting(&notes, async {
        let mut out =
            Response { trace: Some(Trace::begin(engine, "Execute CQL3 query")), ..Response::default() };
        let client = client();
        let parameters = QueryParameters::at(Consistency::One, client.version);
        engine.query(&client, statement, &parameters, &mut out).await.unwrap();
    })
    .await;
    let facts = notes.take_facts();
    assert!(facts.is_sorted_by_key(|fact: &ToldFact| fact.at), "in the order of time: {facts:?}");
    facts.into_iter().map(|fact| fact.text).collect()
}

/// Fails unless the facts are so many, and each contains the text that belongs to it.
fn check_facts(facts: &[String], expected: &[&str]) {
    let fits = facts.len() == expected.len()
        && facts.iter().zip(expected).all(|(fact, expected)| fact.contains(expected));
    assert!(fits, "{facts:#?} instead of {expected:#?}");
}

/// Flushes the table `ks.t` on the only shard, and forgets what the row cache has.
async fn flush_all(engine: &Engine) {
    let table = engine.storage().schema().table("ks", "t").unwrap().id();
    engine.storage().flush(table).await.unwrap();
    engine.storage().evict_cache();
}

async fn places(engine: Engine) {
    const MANUAL: &str = "compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': false}";
    run(&engine, &format!("CREATE TABLE t (k int PRIMARY KEY, v text) WITH {MANUAL}")).await;
    run(&engine, "INSERT INTO t (k, v) VALUES (1, 'old') USING TIMESTAMP 10").await;
    let read = "SELECT v FROM t WHERE k = 1";
    check_facts(&facts_of(&engine, read).await, &["Memtables: 1 of 1 have"]);
    flush_all(&engine).await;
    check_facts(
        &facts_of(&engine, read).await,
        &["Memtables: 0 of 1 have", "may have the key", "Row cache: miss", "Merging 1 sources"],
    );
    check_facts(
        &facts_of(&engine, read).await,
        &["Memtables: 0 of 1 have", "Row cache: hit", "Table files: 1 may have the key, none was read"],
    );
    run(&engine, "INSERT INTO t (k, v) VALUES (1, 'new') USING TIMESTAMP 20").await;
    flush_all(&engine).await;
    check_facts(
        &facts_of(&engine, read).await,
        &[
            "Memtables: 0 of 1 have",
            "may have the key",
            "may have the key",
            "Row cache: miss",
            "skipped, all that it has is older than what was read",
            "Merging 1 sources",
        ],
    );
    let absent = facts_of(&engine, "SELECT v FROM t WHERE k = 2").await;
    assert!(absent.iter().all(|fact| !fact.contains("may have the key")), "{absent:?}");
    assert_eq!(absent.iter().filter(|fact| fact.contains("skipped, ")).count(), 2, "{absent:?}");
    let bypassing = facts_of(&engine, "SELECT v FROM t WHERE k = 1 BYPASS CACHE").await;
    assert!(bypassing.iter().any(|fact| fact.contains("older than what was read")), "{bypassing:?}");
    assert!(!bypassing.iter().any(|fact| fact.contains("Row cache")), "{bypassing:?}");
}

#[test]
fn a_trace_tells_where_a_row_was_found_and_which_files_were_skipped() {
    node(tempfile::tempdir().unwrap().path(), 1, places);
}

async fn elsewhere(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v text)").await;
    flush_and_evict(&engine, "t").await;
    for key in 0..20 {
        run(&engine, &format!("INSERT INTO t (k, v) VALUES ({key}, 'text')")).await;
    }
    flush_and_evict(&engine, "t").await;
    let mut shards = BTreeSet::new();
    for key in 0..20 {
        let notes = Rc::<ReadNotes>::default();
        noting(&notes, run(&engine, &format!("SELECT v FROM t WHERE k = {key}"))).await;
        let facts = notes.take_facts();
        assert!(facts.iter().any(|fact| fact.text.contains("may have the key")), "{facts:?}");
        assert!(facts.iter().any(|fact| fact.text.contains("Row cache: miss")), "{facts:?}");
        shards.extend(facts.into_iter().map(|fact| fact.shard));
    }
    assert_eq!(shards, BTreeSet::from([0, 1]));
}

#[test]
fn a_trace_tells_what_other_shards_found() {
    node(tempfile::tempdir().unwrap().path(), 2, elsewhere);
}

async fn bound(engine: Engine) {
    let mut trace = Trace::begin(&engine, "Execute CQL3 query");
    for number in 0..600 {
        trace.event(format!("event {number}"));
    }
    trace.last_event("Request complete");
    let id = uuid::Uuid::from_bytes(trace.id().unwrap());
    trace.finish(&engine, &client()).await.unwrap();
    let query = format!("SELECT activity FROM system_traces.events WHERE session_id = {id}");
    let events = rows(&engine, &query).await;
    assert_eq!((events.len(), events[0].as_str()), (514, "'event 0'"));
    assert_eq!(events[511..], ["'event 511'", "'Request complete'", "'88 events left out'"]);
}

#[test]
fn a_trace_tells_how_many_events_found_no_room() {
    node(tempfile::tempdir().unwrap().path(), 1, bound);
}

async fn slow(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v text)").await;
    let client = client();
    let parameters = QueryParameters::at(Consistency::Quorum, client.version);
    let text = "INSERT INTO ks.t (k, v) VALUES (1, 'it is slow')";
    let request = Request::Query { query: text, parameters };
    let slow = SlowRequest::of(&engine, &client, &request);
    assert_eq!((slow.text.as_str(), &slow.tables[..]), (text, &["ks.t".to_owned()][..]));
    let mut trace = Trace::begin(&engine, "Execute CQL3 query").unasked();
    assert_eq!(trace.id(), None, "its client did not ask");
    trace.parameter("query", text);
    let took = Duration::from_micros(1234);
    let record = trace.lasted(took).end(&engine, &client).of_slow(&slow, took, 100);
    assert!(record.bytes() > text.len());
    record.write(&engine).await.unwrap();
    let query = "SELECT duration, shard, table_names, username, ttl(duration), session_id \
                 FROM system_traces.node_slow_log";
    let found = rows(&engine, query).await;
    let [found] = &found[..] else { panic!("{found:?}") };
    let (facts, session) = found.rsplit_once(" | ").unwrap();
    assert_eq!(facts, format!("1234 | 0 | {{'ks.t'}} | '{}' | 100", client.user));
    for table in ["node_slow_log_time_idx", "sessions_time_idx"] {
        let found = rows(&engine, &format!("SELECT session_id FROM system_traces.{table}")).await;
        assert_eq!(found, [session], "{table}");
    }
    let duration = format!("SELECT duration FROM system_traces.sessions WHERE session_id = {session}");
    assert_eq!(rows(&engine, &duration).await, ["1234"]);
}

#[test]
fn a_slow_request_is_found_by_its_time_and_by_its_session() {
    node(tempfile::tempdir().unwrap().path(), 1, slow);
}
