//! What a trace knows of a read, which drivers' tests go by to see whether a null made a tombstone and an unset value none.

use crate::support::{client, node, run};
use query::tracing::Trace;
use query::{Engine, Response};
use wire::consistency::Consistency;
use wire::request::QueryParameters;

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
