//! `ceto perf simple-query`: prepared point requests on a node without sockets; each shard has clients of its
//! own.
//!
//! Every client has one request in flight, for a random partition of the whole table, so with several shards
//! most requests cross to the shard that owns the partition. The partitions are written before the first
//! second. Under `valgrind --tool=callgrind` the difference of two runs with `--operations-per-shard` gives
//! the exact instructions of one request; `perf/counts.sh` checks them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc;

use clap::Args;
use reactor::mesh;
use reactor::{Group, ShardInfo};
use serde_json::{Map, Value, json};
use storage::Storage;

use super::PerfError;
use super::client::{Client, KEY_BYTES, Template};
use super::directory::Directory;
use super::meter::Meter;
use super::run::{self, Bench, RunOptions, Slice, Until};
use crate::config::{Config, Driver};
use crate::inproc::Node;

/// Columns of a row, and the length of each in bytes.
const COLUMNS: usize = 5;
const COLUMN_BYTES: usize = 32;
/// Requests of one client between two checks of the clock.
const STRIDE: u64 = 16;
/// Clients that write the partitions before the first second.
const FILLERS: usize = 64;

/// Options of `ceto perf simple-query`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Write rows instead of reading them
    #[arg(long, group = "kind")]
    write: bool,
    /// Add to counters
    #[arg(long, group = "kind")]
    counter: bool,
    /// Delete the columns of rows
    #[arg(long, group = "kind")]
    delete: bool,
    /// Read rows that were flushed, out of the row cache
    #[arg(long, group = "kind")]
    cached: bool,
    /// Read rows that were flushed and written again: of the row cache and of a memtable
    #[arg(long, group = "kind")]
    rewritten: bool,
    /// Partitions
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    partitions: u64,
    /// Requests in flight on each shard
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// End after so many operations on each shard instead of by time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations_per_shard: Option<u64>,
    /// Shards
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    smp: u16,
    /// Memory for all shards, such as 1G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = crate::cli::size)]
    memory: u64,
    /// How shards talk to the kernel
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    driver: Driver,
    /// Random keys are the same for the same seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    run: RunOptions,
}

impl Options {
    fn kind(&self) -> &'static str {
        let kinds = [
            (self.write, "write"),
            (self.counter, "counter"),
            (self.delete, "delete"),
            (self.cached, "cached"),
            (self.rewritten, "rewritten"),
        ];
        kinds.into_iter().find(|(is_it, _)| *is_it).map_or("read", |(_, kind)| kind)
    }

    /// The statement that creates the table, the measured statement, and the index of its key marker.
    fn statement(&self) -> (&'static str, &'static str, usize) {
        match self.kind() {
            "write" => (TABLE, INSERT, 0),
            "counter" => (
                "CREATE TABLE ks.counters (key blob PRIMARY KEY, c0 counter, c1 counter, c2 counter, c3 counter, c4 counter)",
                "UPDATE ks.counters SET c0 = c0 + 1, c1 = c1 + 2, c2 = c2 + 3, c3 = c3 + 4, c4 = c4 + 5 WHERE key = ?",
                0,
            ),
            "delete" => (TABLE, "DELETE c0, c1, c2, c3, c4 FROM ks.cf WHERE key = ?", 0),
            _ => (TABLE, "SELECT c0, c1, c2, c3, c4 FROM ks.cf WHERE key = ?", 0),
        }
    }

    fn reactor(&self) -> reactor::Config {
        let shards = usize::from(self.smp);
        reactor::Config { shards, pin: shards > 1, ..run::reactor_with(self.driver) }
    }
}

const TABLE: &str = "CREATE TABLE ks.cf (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)";
const INSERT: &str = "INSERT INTO ks.cf (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)";

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    let (outcome, outcomes) = mpsc::channel();
    let reactor = options.reactor();
    let running = reactor::start(reactor, move |shard: ShardInfo| {
        let (options, outcome) = (options.clone(), outcome.clone());
        async move {
            if shard.id == 0 {
                // The receiver outlives every shard.
                let _ = outcome.send(lead(options).await.map_err(|error| error.to_string()));
            }
        }
    })?;
    running.join()?;
    let outcome = outcomes.recv().unwrap_or_else(|_| Err("shard 0 gave no result".to_owned()));
    outcome.map_err(PerfError::Elsewhere)
}

/// The work of shard 0: opens the node, measures on every shard, and closes the node.
async fn lead(options: Options) -> Result<(), PerfError> {
    let directory = Directory::open(options.run.workdir.as_deref()).await?;
    let workdir = directory.path().to_owned();
    let config = Config { workdir, memory_bytes: Some(options.memory), ..Config::default() };
    let node = Node::open(&config).await.map_err(|error| PerfError::Node(error.to_string()))?;
    let measured = measure(&node, &options).await;
    let closed = node.close().await.map_err(PerfError::Node);
    measured.and(closed).and(directory.close().await)
}

async fn measure(node: &Node, options: &Options) -> Result<(), PerfError> {
    let mut client = Client::connect(node).await?;
    client
        .statement(
            "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = \
             {'class': 'SimpleStrategy', 'replication_factor': 1}",
        )
        .await?;
    let (table, ..) = options.statement();
    client.statement(&table.replacen("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)).await?;
    fill(node, options).await?;
    if options.cached || options.rewritten {
        flush().await?;
    }
    if options.rewritten {
        fill(node, options).await?;
    }
    let openings: Vec<_> = (0..reactor::shard_count())
        .map(|shard| {
            let options = options.clone();
            mesh::call(shard, Group::STATEMENT, move || async move {
                let clients = Clients::open(&options).await.map_err(|error| error.to_string())?;
                reactor::set_local(Rc::new(clients));
                Ok::<_, String>(())
            })
        })
        .collect();
    for opening in openings {
        opening.await?.map_err(PerfError::Node)?;
    }
    let mut bench = SimpleQuery { options: options.clone() };
    run::run(&mut bench, &options.run).await?;
    let last = reactor::local::<Clients>().expect("every shard has clients");
    last.check()
}

/// Flushes all tables on every shard, after which the row cache has their rows.
async fn flush() -> Result<(), PerfError> {
    for shard in 0..reactor::shard_count() {
        let flushed = mesh::call(shard, Group::MEMTABLE, || async {
            let storage = reactor::local::<Storage>().ok_or("the storage is not open")?;
            for table in storage.schema().tables() {
                storage.flush(table.id()).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        });
        flushed.await?.map_err(PerfError::Node)?;
    }
    Ok(())
}

/// Writes every partition once.
async fn fill(node: &Node, options: &Options) -> Result<(), PerfError> {
    let next = Rc::new(Cell::new(0));
    let mut fillers = Vec::new();
    for _ in 0..FILLERS {
        let mut client = Client::connect(node).await?;
        let (_, statement, key) = if options.counter { options.statement() } else { (TABLE, INSERT, 0) };
        let template = prepare(&mut client, statement, key).await?;
        let (next, partitions) = (Rc::clone(&next), options.partitions);
        fillers.push(reactor::spawn(Group::STATEMENT, async move {
            loop {
                let key = next.get();
                if key >= partitions {
                    return Ok(());
                }
                next.set(key + 1);
                if !client.execute(&template, key).await? {
                    return client.check_last(&template);
                }
            }
        }));
    }
    for filler in fillers {
        filler.await??;
    }
    Ok(())
}

async fn prepare(client: &mut Client, statement: &str, key: usize) -> Result<Template, PerfError> {
    let column = [0x55; COLUMN_BYTES];
    let mut values: Vec<&[u8]> = vec![&[0; KEY_BYTES]];
    if statement == INSERT {
        values.extend([&column[..]; COLUMNS]);
    }
    client.prepare(statement, &values, key).await
}

/// The clients of a shard; found with `reactor::local`.
struct Clients {
    idle: RefCell<Vec<One>>,
    template: Template,
    partitions: u64,
    meter: Meter,
}

/// A client and the state of its random numbers.
struct One {
    client: Client,
    random: u64,
}

impl One {
    /// A random key below `partitions` (SplitMix64).
    fn next_key(&mut self, partitions: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(partitions)) >> 64) as u64
    }
}

impl Clients {
    async fn open(options: &Options) -> Result<Self, PerfError> {
        let node = Node::here().expect("the node is open on every shard");
        let shard = reactor::shard_id() as u64;
        let mut idle = Vec::new();
        for at in 0..u64::from(options.concurrency) {
            let random = options.seed ^ (shard << 48) ^ (at << 24);
            idle.push(One { client: Client::connect(&node).await?, random });
        }
        let (_, statement, key) = options.statement();
        let template = prepare(&mut idle[0].client, statement, key).await?;
        Ok(Self { idle: RefCell::new(idle), template, partitions: options.partitions, meter: Meter::new() })
    }

    /// Runs every client until `until`.
    async fn slice(self: Rc<Self>, until: Until) -> Result<Slice, PerfError> {
        let done = Rc::new(Cell::new(0));
        let errors = Rc::new(Cell::new(0));
        let began = reactor::now();
        let (outcome, used) = self
            .meter
            .measure(async {
                let idle = std::mem::take(&mut *self.idle.borrow_mut());
                let tasks: Vec<_> = idle
                    .into_iter()
                    .map(|one| {
                        let (clients, done, errors) =
                            (Rc::clone(&self), Rc::clone(&done), Rc::clone(&errors));
                        reactor::spawn(Group::STATEMENT, async move {
                            clients.work(one, until, &done, &errors).await
                        })
                    })
                    .collect();
                let mut outcome = Ok(());
                for task in tasks {
                    outcome = outcome.and(task.await?);
                }
                outcome
            })
            .await;
        outcome?;
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(Slice { operations: done.get(), errors: errors.get(), elapsed_ns, used })
    }

    async fn work(
        &self,
        mut one: One,
        until: Until,
        done: &Cell<u64>,
        errors: &Cell<u64>,
    ) -> Result<(), PerfError> {
        let mut outcome = Ok(());
        'work: while until.goes_on(done.get()) {
            for _ in 0..STRIDE {
                if let Until::Operations(count) = until
                    && done.get() >= count
                {
                    break 'work;
                }
                done.set(done.get() + 1);
                let key = one.next_key(self.partitions);
                match one.client.execute(&self.template, key).await {
                    Ok(true) => {}
                    Ok(false) => errors.set(errors.get() + 1),
                    Err(error) => {
                        outcome = Err(error);
                        break 'work;
                    }
                }
            }
            reactor::maybe_yield().await;
        }
        self.idle.borrow_mut().push(one);
        outcome
    }

    /// Checks the last answer of each client.
    fn check(&self) -> Result<(), PerfError> {
        // With few operations, some clients have executed none.
        let idle = self.idle.borrow();
        idle.iter()
            .filter(|one| one.client.was_answered(&self.template))
            .try_for_each(|one| one.client.check_last(&self.template))
    }
}

struct SimpleQuery {
    options: Options,
}

impl Bench for SimpleQuery {
    const NAME: &'static str = "simple-query";

    fn operation(&self) -> String {
        format!("a prepared {} of one of {} partitions", self.options.kind(), self.options.partitions)
    }

    fn parameters(&self) -> Map<String, Value> {
        let Options { partitions, concurrency, operations_per_shard, smp, memory, seed, run, .. } =
            &self.options;
        let parameters = json!({
            "kind": self.options.kind(), "partitions": partitions, "concurrency": concurrency,
            "operations_per_shard": operations_per_shard, "smp": smp, "memory": memory, "seed": seed,
            "duration": run.duration, "driver": reactor::driver_name(),
        });
        parameters.as_object().cloned().unwrap_or_default()
    }

    fn operations_per_shard(&self) -> Option<u64> {
        self.options.operations_per_shard
    }

    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError> {
        let calls: Vec<_> = (0..reactor::shard_count())
            .map(|shard| {
                mesh::call(shard, Group::STATEMENT, move || async move {
                    let clients = reactor::local::<Clients>().expect("every shard has clients");
                    clients.slice(until).await.map_err(|error| error.to_string())
                })
            })
            .collect();
        let mut all: Option<Slice> = None;
        for call in calls {
            let one = call.await?.map_err(PerfError::Node)?;
            all = Some(match all {
                None => one,
                Some(all) => Slice {
                    operations: all.operations + one.operations,
                    errors: all.errors + one.errors,
                    elapsed_ns: all.elapsed_ns.max(one.elapsed_ns),
                    used: all.used.and(one.used),
                },
            });
        }
        Ok(all.expect("there is a shard at least"))
    }
}
