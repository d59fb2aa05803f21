//! `ceto perf scan`: reads of many partitions on a node without sockets: pages of a full scan, ranges of
//! tokens, filters and aggregates.
//!
//! The rows are written first and flushed into several table files, so that a range read merges files. An
//! operation is one request: a page, a range, or a filter over the whole table.

use std::cell::Cell;
use std::rc::Rc;

use clap::{Args, ValueEnum};
use reactor::{Group, ShardInfo};
use serde_json::{Map, Value, json};
use storage::Storage;

use super::PerfError;
use super::client::{Client, Paged};
use super::directory::Directory;
use super::meter::Meter;
use super::run::{self, Bench, RunOptions, Slice, Until};
use crate::config::{Config, Driver};
use crate::inproc::Node;

/// Columns of a row, and the length of each in bytes.
const COLUMNS: usize = 5;
const COLUMN_BYTES: usize = 34;
/// Clients that write the rows before the first second.
const FILLERS: usize = 64;

/// The kind of read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Pages of a scan of the whole table, one after the other
    Pages,
    /// The first rows behind a random token
    Ranges,
    /// The whole table through a filter that lets nothing pass
    Filter,
    /// The whole table through an aggregate
    Aggregate,
}

impl Mode {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Options of `ceto perf scan`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The kind of read
    #[arg(long, value_enum, default_value_t = Mode::Pages)]
    mode: Mode,
    /// Rows of the table, a partition each
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rows: u64,
    /// Rows of a page or of a range
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    page: u32,
    /// Table files that the rows are spread over
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    files: u32,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// End after so many operations instead of by time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Memory of the node, such as 1G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = crate::cli::size)]
    memory: u64,
    /// How the shard talks to the kernel
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    driver: Driver,
    #[command(flatten)]
    run: RunOptions,
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS ks.scanned \
     (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)";
const INSERT: &str = "INSERT INTO ks.scanned (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)";

impl Options {
    fn statement(&self) -> String {
        match self.mode {
            Mode::Pages => "SELECT * FROM ks.scanned".to_owned(),
            Mode::Ranges => format!("SELECT * FROM ks.scanned WHERE token(key) > ? LIMIT {}", self.page),
            Mode::Filter => "SELECT * FROM ks.scanned WHERE c2 = 0x00 ALLOW FILTERING".to_owned(),
            Mode::Aggregate => "SELECT count(*), max(c3) FROM ks.scanned".to_owned(),
        }
    }
}

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    let (outcome, outcomes) = std::sync::mpsc::channel();
    let running = reactor::start(run::reactor_with(options.driver), move |_: ShardInfo| {
        let (options, outcome) = (options.clone(), outcome.clone());
        async move {
            // The receiver outlives the shard.
            let _ = outcome.send(lead(options).await.map_err(|error| error.to_string()));
        }
    })?;
    running.join()?;
    let outcome = outcomes.recv().unwrap_or_else(|_| Err("the shard gave no result".to_owned()));
    outcome.map_err(PerfError::Elsewhere)
}

async fn lead(options: Options) -> Result<(), PerfError> {
    let directory = Directory::open(options.run.workdir.as_deref()).await?;
    let workdir = directory.path().to_owned();
    let config = Config { workdir, memory_bytes: Some(options.memory), ..Config::default() };
    let node = Node::open(&config).await.map_err(|error| PerfError::Node(error.to_string()))?;
    let run_options = options.run.clone();
    let measured = async {
        fill(&node, &options).await?;
        let mut idle = Vec::new();
        for at in 0..u64::from(options.concurrency) {
            let client = Client::connect(&node).await?;
            idle.push(One { client, paging: None, random: at });
        }
        let id = Rc::from(idle[0].client.prepare_id(&options.statement()).await?);
        let mut bench = Scan { options, idle, id, meter: Meter::new() };
        run::run(&mut bench, &run_options).await
    }
    .await;
    let closed = node.close().await.map_err(PerfError::Node);
    measured.and(closed).and(directory.close().await)
}

/// Writes the rows in as many stretches as there shall be files, and flushes after each.
async fn fill(node: &Node, options: &Options) -> Result<(), PerfError> {
    let mut client = Client::connect(node).await?;
    let keyspace = "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}";
    client.statement(keyspace).await?;
    client.statement(TABLE).await?;
    let per_file = options.rows.div_ceil(u64::from(options.files));
    let next = Rc::new(Cell::new(0));
    while next.get() < options.rows {
        let end = options.rows.min(next.get() + per_file);
        let mut fillers = Vec::new();
        for _ in 0..FILLERS {
            let mut client = Client::connect(node).await?;
            let id = client.prepare_id(INSERT).await?;
            let next = Rc::clone(&next);
            fillers.push(reactor::spawn(Group::STATEMENT, async move {
                while next.get() < end {
                    let row = next.replace(next.get() + 1);
                    let columns: [_; COLUMNS] = std::array::from_fn(|column| noise(row, column));
                    let key = row.to_be_bytes();
                    let mut values: Vec<&[u8]> = vec![&key];
                    values.extend(columns.iter().map(|column| &column[..]));
                    client.execute_values(&id, &values).await?;
                }
                Ok::<_, PerfError>(())
            }));
        }
        for filler in fillers {
            filler.await??;
        }
        let storage = reactor::local::<Storage>().expect("the node is open");
        let tables: Vec<_> = storage.schema().tables().map(|table| table.id()).collect();
        for table in tables {
            storage.flush(table).await?;
        }
    }
    Ok(())
}

/// The value of a column: bytes that do not compress.
fn noise(row: u64, column: usize) -> [u8; COLUMN_BYTES] {
    let mut random = row * COLUMNS as u64 + column as u64;
    std::array::from_fn(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    })
}

/// A client, its place in the scan, and the state of its random numbers.
struct One {
    client: Client,
    paging: Option<Vec<u8>>,
    random: u64,
}

impl One {
    async fn request(&mut self, id: &[u8], options: &Options) -> Result<bool, PerfError> {
        let token: [u8; 8];
        let mut values: &[&[u8]] = &[];
        let mut page_size = None;
        let bound: [&[u8]; 1];
        match options.mode {
            Mode::Ranges => {
                self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
                token = (self.random ^ (self.random >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes();
                bound = [&token];
                values = &bound;
            }
            Mode::Pages => page_size = Some(options.page.cast_signed()),
            Mode::Filter | Mode::Aggregate => {}
        }
        let paged = Paged { page_size, paging_state: self.paging.take() };
        let (rows, paging) = self.client.rows(id, values, &paged).await?;
        self.paging = paging;
        let expected = match options.mode {
            // Behind the last tokens, and at the end of the table, there are fewer.
            Mode::Pages | Mode::Ranges => rows <= options.page as usize,
            Mode::Filter => rows == 0,
            Mode::Aggregate => rows == 1,
        };
        Ok(expected)
    }
}

struct Scan {
    options: Options,
    idle: Vec<One>,
    id: Rc<[u8]>,
    meter: Meter,
}

impl Bench for Scan {
    const NAME: &'static str = "scan";

    fn operation(&self) -> String {
        let Options { mode, rows, page, files, .. } = &self.options;
        match mode {
            Mode::Pages => format!("a page of {page} rows of {rows} in {files} files"),
            Mode::Ranges => format!("a range of {page} rows of {rows} in {files} files"),
            Mode::Filter | Mode::Aggregate => format!("a scan of {rows} rows in {files} files"),
        }
    }

    fn parameters(&self) -> Map<String, Value> {
        let Options { mode, rows, page, files, concurrency, operations, memory, run, .. } = &self.options;
        let parameters = json!({
            "mode": mode.name(), "rows": rows, "page": page, "files": files, "concurrency": concurrency,
            "operations": operations, "memory": memory, "duration": run.duration,
            "driver": reactor::driver_name(),
        });
        parameters.as_object().cloned().unwrap_or_default()
    }

    fn operations_per_shard(&self) -> Option<u64> {
        self.options.operations
    }

    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError> {
        let (done, errors) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let idle = std::mem::take(&mut self.idle);
        let began = reactor::now();
        let working = async {
            let tasks: Vec<_> = idle
                .into_iter()
                .map(|mut one| {
                    let (done, errors) = (Rc::clone(&done), Rc::clone(&errors));
                    let (id, options) = (Rc::clone(&self.id), self.options.clone());
                    reactor::spawn(Group::STATEMENT, async move {
                        while until.goes_on(done.get()) {
                            done.set(done.get() + 1);
                            let right = one.request(&id, &options).await?;
                            errors.set(errors.get() + u64::from(!right));
                            reactor::maybe_yield().await;
                        }
                        Ok::<_, PerfError>(one)
                    })
                })
                .collect();
            let mut back = Vec::new();
            for task in tasks {
                back.push(task.await??);
            }
            Ok::<_, PerfError>(back)
        };
        let (back, used) = self.meter.measure(working).await;
        self.idle = back?;
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(Slice { operations: done.get(), errors: errors.get(), elapsed_ns, used })
    }
}
