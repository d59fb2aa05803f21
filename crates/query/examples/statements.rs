//! Parses and plans typical unprepared statements, for counting: `statements NAME COUNT`, or `statements` for
//! their names.
//!
//! Prints the heap allocations of each. Under `valgrind --tool=callgrind` the difference between two counts
//! gives instructions; `perf/statements.sh` does that.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program of its own, no shard of a node"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use query::{ClientState, EngineConfig, Response};
use reactor::{Config, DriverChoice};
use storage::StorageConfig;
use wire::consistency::Consistency;
use wire::request::QueryParameters;
use wire::version::ProtocolVersion;

/// Statements that applications send, by name.
const STATEMENTS: [(&str, &str); 10] = [
    ("point", "SELECT name, email, age FROM users WHERE id = 7"),
    ("star", "SELECT * FROM events WHERE user = 7 AND at = '2024-05-06 07:08:09.123Z'"),
    (
        "slice",
        "SELECT at, kind, payload FROM events WHERE user = 7 AND at >= '2024-05-06' AND at < '2024-05-07' ORDER BY at \
         DESC LIMIT 100",
    ),
    ("in", "SELECT id, name FROM users WHERE id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)"),
    ("aggregate", "SELECT user, count(*), max(at) FROM events GROUP BY user"),
    (
        "insert",
        "INSERT INTO users (id, name, email, age, tags) VALUES (7, 'Ada Lovelace', 'ada@example.org', 36, {'math', \
         'poetry'}) USING TTL 86400",
    ),
    ("update", "UPDATE users SET name = 'Ada', age = 37, tags = tags + {'engine'} WHERE id = 7"),
    ("delete", "DELETE FROM events WHERE user = 7 AND at > '2024-05-06'"),
    ("conditional", "UPDATE users SET email = 'new@example.org' WHERE id = 7 IF email = 'ada@example.org'"),
    (
        "batch",
        "BEGIN BATCH INSERT INTO events (user, at, kind, payload) VALUES (7, '2024-05-06', 'login', 0x0102); UPDATE \
         users SET age = 38 WHERE id = 7; APPLY BATCH",
    ),
];
const SCHEMA: [&str; 3] = [
    "CREATE KEYSPACE app WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE app.users (id bigint PRIMARY KEY, name text, email text, age int, tags set<text>)",
    "CREATE TABLE app.events (user bigint, at timestamp, kind text, payload blob, PRIMARY KEY (user, at))",
];
/// Statements before counting begins.
const WARM_UP: usize = 100;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every method hands its arguments to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        STATEMENTS.iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let count: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1000);
    let (_, text) = *STATEMENTS.iter().find(|(known, _)| *known == name).expect("one of the names");
    let workdir = tempfile::tempdir().expect("a temporary folder");
    let config = Config { shards: 1, driver: DriverChoice::Poll, pin: false, ..Config::default() };
    let path = workdir.path().to_owned();
    let allocations = reactor::run_one(config, async move {
        let config = EngineConfig::new([7; 16], 1);
        let opened = query::node::open(StorageConfig::new(path, 16 << 20), config).await;
        let engine = opened.expect("an empty folder");
        for statement in SCHEMA {
            engine
                .query(&client(), statement, &parameters(), &mut Response::default())
                .await
                .expect(statement);
        }
        let plan = || drop(black_box(engine.plan(Some("app"), black_box(text)).expect(text)));
        (0..WARM_UP).for_each(|_| plan());
        let before = ALLOCATIONS.get();
        (0..count).for_each(|_| plan());
        ALLOCATIONS.get() - before
    });
    println!("{name}: {count} times, {:.2} allocations each", allocations as f64 / count as f64);
}

fn client() -> ClientState {
    ClientState::new(None, "anonymous")
}

fn parameters() -> QueryParameters<'static> {
    QueryParameters::at(Consistency::One, ProtocolVersion::V5)
}
