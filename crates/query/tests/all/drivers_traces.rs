//! What a trace knows of a read, which drivers' tests go by to see whether a null made a tombstone and an unset value none.

use crate::support::{client, node, prepare, rows, run};
use query::tracing::Trace;
use query::{Engine, Response};
use wire::consistency::Consistency;
use wire::request::QueryParameters;
use wire::values::Values;
use wire::version::ProtocolVersion;

async fn tombstones_met(engine: &Engine, statement: &str) -> u64 {
    let mut out = Response { trace: Some(Trace::begin(engine, "Execute CQL3 query")), ..Response::default() };
    let client = client();
    let parameters = QueryParameters::at(Consistency::One, client.version);
    engine.query(&client, statement, &parameters, &mut out).await.unwrap();
    out.trace.unwrap().tombstones
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
    // Those that do not fit say nothing, nor does what is not known.
    trace.prepared(&engine, &[0; 16], &Values::empty(ProtocolVersion::V5));
    let id = uuid::Uuid::from_bytes(trace.id());
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
