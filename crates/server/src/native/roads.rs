//! Compares the quick road, on which plain requests for one row are answered without a task, with the plain
//! road that all others take.
//!
//! Two nodes of two shards run the same requests through clients without sockets; one node has the quick road
//! turned off (`EngineConfig::quick_road`). Every answer must be the same, byte for byte. Timestamps are
//! given, so that nothing in an answer depends on when it was made. `reads` and `writes` list the requests,
//! `client` sends them.

mod client;
mod reads;
mod writes;

use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use query::{Engine, EngineConfig};
use reactor::{Config, DriverChoice, Group, mesh};
use storage::StorageConfig;

use super::Native;
use client::Clients;

/// Shards of a node: the clients are on the first one.
const SHARDS: usize = 2;
const MEMORY_BYTES: u64 = 32 << 20;
/// Turns that a shard waits for another one to have started.
/// Differences that a failed comparison shows.
const SHOWN_MAX: usize = 20;

/// Answers with what was asked, in order.
type Answers = Vec<(String, Vec<u8>)>;

/// Work on a node, by clients of its first shard.
type Work<Fut> = fn(Clients, Engine) -> Fut;

async fn open(workdir: &Path, shard: usize, adjust: fn(&mut EngineConfig), quick_road: bool) -> Rc<Native> {
    let storage = StorageConfig::new(workdir.to_owned(), MEMORY_BYTES as usize);
    let mut config = EngineConfig::new([7; 16], SHARDS);
    // A slow machine must not change an answer.
    for timeout in [&mut config.read_timeout, &mut config.range_timeout, &mut config.write_timeout] {
        *timeout = Duration::from_secs(300);
    }
    adjust(&mut config);
    config.quick_road = quick_road;
    let engine = query::node::open(storage, config).await.expect("an empty folder");
    if shard == 0 {
        query::node::all_opened().await;
    }
    Native::new(&crate::config::Config::default(), engine)
}

/// The answers of a node.
fn answers<Fut>(adjust: fn(&mut EngineConfig), quick_road: bool, work: Work<Fut>) -> Answers
where
    Fut: Future<Output = Answers> + 'static,
{
    let folder = tempfile::tempdir().expect("a folder");
    let workdir = folder.path().to_owned();
    let (sender, receiver) = mpsc::channel();
    let config = Config { shards: SHARDS, driver: DriverChoice::Poll, pin: false, ..Config::default() };
    let running = reactor::start(config, move |shard| {
        let (sender, workdir) = (sender.clone(), workdir.clone());
        async move {
            let native = open(&workdir, shard.id, adjust, quick_road).await;
            if shard.id == 0 {
                let clients = Clients::connect(&native).await;
                let done = work(clients, native.engine.clone()).await;
                sender.send(done).expect("the test waits for it");
            }
        }
    });
    running.expect("two shards").join().expect("no shard breaks");
    receiver.recv().expect("shard 0 sent its answers")
}

/// Does the same work on a node with the quick road and on one without, and compares the answers.
fn check<Fut>(adjust: fn(&mut EngineConfig), work: Work<Fut>)
where
    Fut: Future<Output = Answers> + 'static,
{
    let (quick, plain) = (answers(adjust, true, work), answers(adjust, false, work));
    assert_eq!(quick.len(), plain.len());
    let differences: Vec<String> = quick
        .iter()
        .zip(&plain)
        .filter(|(quick, plain)| quick != plain)
        .map(|((asked, quick), (same, plain))| {
            assert_eq!(asked, same, "both nodes are asked the same");
            format!("{asked}\n  quick: {}\n  plain: {}", quick.escape_ascii(), plain.escape_ascii())
        })
        .collect();
    assert!(
        differences.is_empty(),
        "{} of {} answers differ between the roads:\n{}",
        differences.len(),
        quick.len(),
        differences[..differences.len().min(SHOWN_MAX)].join("\n")
    );
}

/// Flushes tables on every shard.
async fn flush(engine: &Engine, tables: &[&'static str]) {
    let schema = engine.storage().schema();
    let ids: Vec<_> = tables.iter().map(|name| schema.table("ks", name).expect("a table").id()).collect();
    for shard in 0..SHARDS {
        let ids = ids.clone();
        let flushed = mesh::call(shard, Group::ADMIN, move || async move {
            let storage = Engine::here().expect("a shard that has started").storage().clone();
            for id in ids {
                storage.flush(id).await.expect("a flush");
            }
        });
        flushed.await.expect("a shard");
    }
}

/// Empties the row cache of a shard.
async fn evict(engine: &Engine, shard: usize) {
    if shard == reactor::shard_id() {
        return engine.storage().evict_cache();
    }
    let evicted = mesh::call(shard, Group::ADMIN, || async {
        Engine::here().expect("a shard that has started").storage().evict_cache();
    });
    evicted.await.expect("a shard");
}

#[test]
fn reads_are_answered_alike_on_both_roads() {
    check(|_| {}, reads::all);
}

#[test]
fn writes_are_answered_alike_on_both_roads() {
    check(|_| {}, writes::all);
}

#[test]
fn guardrails_speak_alike_on_both_roads() {
    check(reads::guard, reads::guarded);
}

#[test]
fn a_cold_read_looks_into_the_cache_once_on_both_roads() {
    check(|_| {}, reads::looks);
}
