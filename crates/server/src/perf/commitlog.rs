//! `ceto perf commitlog`: appends entries to a shard's commit log, with either `commitlog_sync`.

use std::cell::Cell;
use std::rc::Rc;

use clap::{Args, ValueEnum};
use reactor::Group;
use serde_json::{Map, Value, json};
use storage::measuring::Log;
use storage::{CommitlogSync, StorageConfig};

use super::PerfError;
use super::directory::Directory;
use super::meter::Meter;
use super::run::{self, Bench, RunOptions, Slice, Until};

/// When an append is acknowledged (`commitlog_sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sync {
    /// When the kernel has it
    Periodic,
    /// When it is durable
    Batch,
}

/// Options of `ceto perf commitlog`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Bytes of an entry's content
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    entry_bytes: u32,
    /// Appends in flight
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// When an append is answered
    #[arg(long, value_enum, default_value_t = Sync::Periodic)]
    sync: Sync,
    #[command(flatten)]
    run: RunOptions,
}

pub(super) fn run(options: Options) -> Result<(), PerfError> {
    let reactor = reactor::Config { name: "perf".into(), ..reactor::Config::default() };
    reactor::run_one(reactor, async move {
        let directory = Directory::open(options.run.workdir.as_deref()).await?;
        let mut config = StorageConfig::new(directory.path(), 0);
        if options.sync == Sync::Batch {
            config.commitlog_sync = CommitlogSync::Batch;
        }
        let log = Log::open(&config).await?;
        let run_options = options.run.clone();
        let mut bench = Commitlog { options, log: log.clone(), meter: Meter::new() };
        let measured = run::run(&mut bench, &run_options).await;
        let closed = log.close().await.map_err(PerfError::from);
        measured.and(closed).and(directory.close().await)
    })
}

struct Commitlog {
    options: Options,
    log: Log,
    meter: Meter,
}

impl Bench for Commitlog {
    const NAME: &'static str = "commitlog";

    fn operation(&self) -> String {
        format!("an entry of {} bytes, {:?}", self.options.entry_bytes, self.options.sync).to_lowercase()
    }

    fn parameters(&self) -> Map<String, Value> {
        let Options { entry_bytes, concurrency, sync, .. } = &self.options;
        let parameters = json!({
            "entry_bytes": entry_bytes, "concurrency": concurrency,
            "sync": format!("{sync:?}").to_lowercase(),
        });
        parameters.as_object().cloned().unwrap_or_default()
    }

    async fn slice(&mut self, until: Until) -> Result<Slice, PerfError> {
        let done = Rc::new(Cell::new(0));
        let began = reactor::now();
        let (outcome, used) = self
            .meter
            .measure(async {
                let tasks: Vec<_> = (0..self.options.concurrency)
                    .map(|_| {
                        let (log, done) = (self.log.clone(), Rc::clone(&done));
                        let entry = vec![0x5a; self.options.entry_bytes as usize];
                        reactor::spawn(Group::STATEMENT, async move {
                            while until.goes_on(done.get()) {
                                log.append(&entry, reactor::Deadline::after(run::PATIENCE)).await?;
                                done.set(done.get() + 1);
                            }
                            Ok::<_, PerfError>(())
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
        Ok(Slice { operations: done.get(), errors: 0, elapsed_ns, used })
    }
}
