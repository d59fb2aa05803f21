//! Requests answered in process, for counting: `inproc read|cached|write COUNT [DIRECTORY]`.
//!
//! Prepares one statement on a node of one shard without sockets, answers it COUNT times, and prints heap allocations
//! per request. `read` finds its rows in the memtable, `cached` in the row cache. Under `valgrind --tool=callgrind` the difference between two counts gives instructions per request;
//! `perf/counts.sh` does that. The commit log is on, in its periodic mode.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::path::PathBuf;

use server::config::Config;
use server::inproc::Node;
use wire::Consistency;
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody};
use wire::compression::Compressor;
use wire::frame::{Direction, Frame};
use wire::values::ValueRef;
use wire::version::ProtocolVersion;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The process's allocator, counting what each thread takes.
struct Counting;

// SAFETY: every call goes to mimalloc as it came; counting touches nothing of the memory.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { mimalloc::MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { mimalloc::MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { mimalloc::MiMalloc.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Partitions that are read and written.
const PARTITIONS: u64 = 1000;
/// Requests before counting starts.
const WARM_UP: u64 = 2 * PARTITIONS;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "read".into());
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let workdir = arguments.next().map_or_else(|| std::env::temp_dir().join("ceto-inproc"), PathBuf::from);
    let config = Config { workdir, memory_bytes: Some(256 << 20), ..Config::default() };
    let reactor =
        reactor::Config { shards: 1, pin: false, driver: reactor::DriverChoice::Poll, ..Default::default() };
    reactor::run_one(reactor, async move {
        let node = Node::open(&config).await.expect("a node");
        run(&node, &kind, count).await;
        node.close().await.expect("a clean close");
    });
}

struct Client {
    session: server::native::inproc::InProcess,
    connection: ClientConnection,
    compressor: Compressor,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    async fn ask(&mut self, request: &ClientRequest<'_>) {
        self.request.clear();
        self.answer.clear();
        self.connection
            .append_request(&mut self.request, 1, request, &RequestOptions::default(), &mut self.compressor)
            .expect("a request fits a frame");
        self.session.exchange(&self.request, &mut self.answer).await.expect("an answer");
    }

    fn answer<T>(&self, read: impl FnOnce(ResponseBody<'_>) -> T) -> T {
        let frame = Frame::cut_direction(&self.answer, 1 << 28, Direction::Response);
        let frame = frame.expect("a frame").expect("a whole frame");
        let response = wire::client::decode(&frame.header, frame.body, &self.connection.extensions);
        read(response.expect("a response").body)
    }

    async fn statement(&mut self, text: &str) {
        self.ask(&ClientRequest::Query(text, &Parameters::at(Consistency::One))).await;
        self.answer(|body| {
            assert!(!matches!(body, ResponseBody::Error { .. }), "{text}: {body:?}");
        });
    }

    async fn prepare(&mut self, text: &str) -> Vec<u8> {
        self.ask(&ClientRequest::Prepare(text, None)).await;
        self.answer(|body| match body {
            ResponseBody::Prepared(prepared) => prepared.id.to_vec(),
            other => panic!("{text}: {other:?}"),
        })
    }
}

async fn run(node: &Node, kind: &str, count: u64) {
    let mut client = Client {
        session: node.client(),
        connection: ClientConnection::new(ProtocolVersion::V4),
        compressor: Compressor::default(),
        request: Vec::new(),
        answer: Vec::new(),
    };
    client.ask(&ClientRequest::Startup(&[("CQL_VERSION", "3.0.0")])).await;
    client
        .statement(
            "CREATE KEYSPACE IF NOT EXISTS bench WITH replication = \
             {'class': 'SimpleStrategy', 'replication_factor': 1}",
        )
        .await;
    client
        .statement(
            "CREATE TABLE IF NOT EXISTS bench.standard1 (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)",
        )
        .await;
    let insert = client
        .prepare("INSERT INTO bench.standard1 (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)")
        .await;
    let select = client.prepare("SELECT c0, c1, c2, c3, c4 FROM bench.standard1 WHERE key = ?").await;
    let write = kind == "write";
    for n in 0..WARM_UP {
        request(&mut client, &insert, n, true).await;
        if !write {
            request(&mut client, &select, n, false).await;
        }
    }
    if kind == "cached" {
        let storage = reactor::local::<storage::Storage>().expect("an open storage");
        storage.flush_all().await.expect("a flush");
    }
    let id = if write { &insert } else { &select };
    let before = ALLOCATIONS.with(Cell::get);
    for n in 0..count {
        request(&mut client, id, n, write).await;
    }
    let allocations = ALLOCATIONS.with(Cell::get) - before;
    client.answer(|body| match body {
        ResponseBody::Void if write => {}
        ResponseBody::Rows(rows) if !write => assert_eq!((rows.row_count, rows.column_count), (1, 5)),
        other => panic!("{other:?}"),
    });
    println!("{kind}: {count} requests, {:.3} allocations each", allocations as f64 / count as f64);
}

async fn request(client: &mut Client, id: &[u8], n: u64, write: bool) {
    let key = (n % PARTITIONS).to_be_bytes();
    let value = [n as u8; 32];
    let values = [ValueRef::Bytes(&key); 1];
    let row = [
        ValueRef::Bytes(&key),
        ValueRef::Bytes(&value),
        ValueRef::Bytes(&value),
        ValueRef::Bytes(&value),
        ValueRef::Bytes(&value),
        ValueRef::Bytes(&value),
    ];
    let mut parameters = Parameters::at(Consistency::One);
    parameters.values = if write { &row } else { &values };
    parameters.skip_metadata = true;
    client.ask(&ClientRequest::Execute { id, result_metadata_id: &[], parameters: &parameters }).await;
}
