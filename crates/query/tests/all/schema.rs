//! Schema statements through the engine, over real storage: every shard has the change, prepared statements
//! are dropped, and a restart with another number of shards has it too.
#![allow(clippy::disallowed_types, reason = "a test hands results out of shards")]

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;

use query::{ClientState, Engine, EngineConfig, QueryError, Response, SchemaEvent};
use reactor::{Config, DriverChoice, Group, mesh};
use storage::StorageConfig;
use wire::consistency::Consistency;
use wire::request::QueryParameters;
use wire::version::ProtocolVersion;

const VERSION: ProtocolVersion = ProtocolVersion::V4;

fn parameters(page_size: Option<u32>) -> QueryParameters<'static> {
    QueryParameters { page_size, ..QueryParameters::at(Consistency::One, VERSION) }
}

fn client() -> ClientState {
    ClientState { keyspace: Some("ks".into()), version: VERSION, ..ClientState::new(None, "anonymous") }
}

async fn run(engine: &Engine, text: &str) -> Result<Response, QueryError> {
    let mut out = Response::default();
    engine.query(&client(), text, &parameters(None), &mut out).await?;
    Ok(out)
}

async fn open(workdir: PathBuf, shard: usize, shards: usize) -> Engine {
    let config = EngineConfig::new([7; 16], shards);
    let engine = query::node::open(StorageConfig::new(workdir, 8 << 20), config).await.unwrap();
    if shard == 0 {
        query::node::all_opened().await;
    }
    engine
}

/// Starts `shards` shards in `workdir`; shard 0 does `work` and returns its result.
fn node<T, Fut>(workdir: &Path, shards: usize, work: fn(Engine) -> Fut) -> T
where
    T: Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let (sender, receiver) = mpsc::channel();
    let workdir = workdir.to_owned();
    let config = Config { shards, driver: DriverChoice::Poll, ..Config::default() };
    let running = reactor::start(config, move |shard| {
        let (sender, workdir) = (sender.clone(), workdir.clone());
        async move {
            let engine = open(workdir, shard.id, shard.count).await;
            if shard.id == 0 {
                let done = work(engine).await;
                sender.send(done).unwrap();
            }
        }
    })
    .unwrap();
    running.join().unwrap();
    receiver.recv().unwrap()
}

async fn version_of(shard: usize) -> [u8; 16] {
    let version = async || Engine::here().unwrap().storage().schema().version();
    mesh::call(shard, Group::ADMIN, version).await.unwrap()
}

const KIND_VOID: [u8; 4] = [0, 0, 0, 1];
const KIND_ROWS: [u8; 4] = [0, 0, 0, 2];

fn rows_contain(out: &Response, text: &str) -> bool {
    assert_eq!(out.body[..4], KIND_ROWS);
    out.body.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn change_the_schema(engine: Engine) -> [u8; 16] {
    let told = Rc::new(RefCell::new(Vec::new()));
    let events = Rc::clone(&told);
    engine.on_schema_change(Rc::new(move |event: &SchemaEvent| events.borrow_mut().push(event.clone())));

    let create = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    let out = run(&engine, create).await.unwrap();
    assert_eq!(out.body, b"\0\0\0\x05\0\x07CREATED\0\x08KEYSPACE\0\x02ks");
    let again = create.replace("KEYSPACE ", "KEYSPACE IF NOT EXISTS ");
    assert_eq!(run(&engine, &again).await.unwrap().body, KIND_VOID);
    run(&engine, "CREATE TYPE pair (a int, b text)").await.unwrap();
    run(&engine, "CREATE TABLE t (k int PRIMARY KEY, v frozen<pair>)").await.unwrap();

    let mut prepared = Response::default();
    engine.prepare(&client(), "SELECT * FROM ks.t WHERE k = 1", None, &mut prepared).await.unwrap();
    let id = prepared.body[6..22].to_vec();
    let mut out = Response::default();
    engine.execute(&client(), &id, None, &parameters(None), &mut out).await.unwrap();
    run(&engine, "ALTER TABLE t ADD w int").await.unwrap();
    let gone = engine.execute(&client(), &id, None, &parameters(None), &mut out).await;
    assert!(matches!(gone, Err(QueryError::Unprepared { .. })), "{gone:?}");
    let forgotten = async || Engine::here().unwrap().prepared().is_empty();
    assert!(mesh::call(1, Group::ADMIN, forgotten).await.unwrap(), "shard 1 has forgotten it too");

    // Two at once: one makes the table, the other finds it.
    let both: Vec<_> = (0..2)
        .map(|_| {
            let engine = engine.clone();
            reactor::spawn(Group::STATEMENT, async move {
                run(&engine, "CREATE TABLE u (k int PRIMARY KEY)").await.is_ok()
            })
        })
        .collect();
    let mut made = 0;
    for one in both {
        made += usize::from(one.await.unwrap());
    }
    assert_eq!(made, 1);
    run(&engine, "ALTER TYPE pair ADD c int").await.unwrap();
    let error = run(&engine, "DROP TABLE nope").await.unwrap_err();
    assert_eq!(error.to_string(), "Table 'ks.nope' doesn't exist");

    let version = engine.storage().schema().version();
    assert_eq!(version_of(1).await, version, "both shards have the same schema");
    let names: Vec<String> =
        told.borrow().iter().map(|event| format!("{} {}", event.change.as_str(), event.name)).collect();
    assert_eq!(
        names,
        ["CREATED ", "CREATED pair", "CREATED t", "UPDATED t", "CREATED u", "UPDATED pair", "UPDATED t"]
    );
    check_what_clients_see(&engine).await;
    check_a_dropped_keyspace(&engine, &told).await;
    engine.storage().schema().version()
}

/// Listeners are notified of everything in a keyspace before they are notified of the keyspace: drivers rely
/// on that.
async fn check_a_dropped_keyspace(engine: &Engine, told: &RefCell<Vec<SchemaEvent>>) {
    for statement in [
        "CREATE KEYSPACE gone WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE gone.pair (a int)",
        "CREATE TABLE gone.t (k int PRIMARY KEY)",
        "CREATE TABLE gone.u (k int PRIMARY KEY, v frozen<pair>)",
    ] {
        run(engine, statement).await.unwrap();
    }
    told.borrow_mut().clear();
    run(engine, "DROP KEYSPACE gone").await.unwrap();
    let heard: Vec<String> = told
        .borrow()
        .iter()
        .map(|event| {
            format!("{} {} {} {}", event.change.as_str(), event.target.as_str(), event.keyspace, event.name)
        })
        .collect();
    assert_eq!(
        heard,
        ["DROPPED TABLE gone t", "DROPPED TABLE gone u", "DROPPED TYPE gone pair", "DROPPED KEYSPACE gone "]
    );
}

async fn check_what_clients_see(engine: &Engine) {
    let out = run(engine, "SELECT * FROM system_schema.columns WHERE keyspace_name = 'ks'").await.unwrap();
    assert!(rows_contain(&out, "frozen<pair>") && !rows_contain(&out, "system_schema_"));
    let out =
        run(engine, "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'").await.unwrap();
    assert!(rows_contain(&out, "t") && rows_contain(&out, "u"));
    let out = run(engine, "SELECT release_version, cluster_name FROM system.local").await.unwrap();
    assert!(rows_contain(&out, "5.0.6") && rows_contain(&out, "Test Cluster"));
    let out = run(engine, "SELECT tokens FROM system.local WHERE key = 'local'").await.unwrap();
    assert!(rows_contain(&out, "9223372036854775807"));
    let out = run(engine, "SELECT * FROM system.peers_v2").await.unwrap();
    assert_eq!(out.body[out.body.len() - 4..], [0, 0, 0, 0]);
    let out = run(engine, "DESCRIBE TABLE t").await.unwrap();
    assert!(rows_contain(
        &out,
        "CREATE TABLE ks.t (\n    k int PRIMARY KEY,\n    v frozen<pair>,\n    w int\n) WITH"
    ));
    let mut out = Response::default();
    engine.query(&client(), "DESCRIBE SCHEMA", &parameters(Some(1)), &mut out).await.unwrap();
    assert_eq!(out.body[7] & 2, 2, "there are more pages");
    let error = run(engine, "SELECT * FROM system.nope").await.unwrap_err();
    assert!(matches!(error, QueryError::Invalid(_)));
    run(engine, "SELECT * FROM system_traces.sessions").await.unwrap();
}

async fn look_again(engine: Engine) -> [u8; 16] {
    check_what_clients_see(&engine).await;
    let version = engine.storage().schema().version();
    for shard in 0..reactor::shard_count() {
        assert_eq!(version_of(shard).await, version);
    }
    version
}

#[test]
fn a_change_reaches_every_shard_and_outlives_the_process() {
    let workdir = tempfile::tempdir().unwrap();
    let version = node(workdir.path(), 2, change_the_schema);
    assert_eq!(node(workdir.path(), 3, look_again), version);
    assert_eq!(node(workdir.path(), 1, look_again), version);
}
